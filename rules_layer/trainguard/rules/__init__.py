"""The rules, one module each, and the protocol that they share."""
