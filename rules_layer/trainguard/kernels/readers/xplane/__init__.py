"""Profiles of XLA, as TensorFlow and JAX write them: ``*.xplane.pb``."""
