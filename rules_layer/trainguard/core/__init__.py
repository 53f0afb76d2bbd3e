"""What everything rests on: records, findings, errors, ports, names and units."""
