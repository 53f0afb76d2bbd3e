"""Rules over kernel profiles, as a job has them: each judges captures by their verdicts."""
