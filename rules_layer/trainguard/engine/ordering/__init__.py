"""The order in which the objects of a stream are applied."""
