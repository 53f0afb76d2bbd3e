"""Families of rules, each over one kind of data that a training job writes."""
