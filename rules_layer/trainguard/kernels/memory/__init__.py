"""A GPU's memory over time: who holds it at its peak, by kind, how it is divided, and what would make it smaller."""
