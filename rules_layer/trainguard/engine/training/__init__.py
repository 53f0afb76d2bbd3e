"""Training health: rules over what training computes, as jobs save it step by step."""
