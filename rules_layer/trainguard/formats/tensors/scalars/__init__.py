"""Scalars that training writes by itself: TensorBoard's event files and the files of trainers."""
