"""MaxInitializationTime: a late first step."""
