"""Trainings of several gloo ranks, one of which is planted to be late: is it named, and with what it costs?"""
