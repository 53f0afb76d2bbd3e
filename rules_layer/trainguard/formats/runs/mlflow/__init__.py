"""Runs of MLflow, from each of its stores."""
