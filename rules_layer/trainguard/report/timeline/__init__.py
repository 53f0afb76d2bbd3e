"""What a profile was like over time: samples and steps put into buckets of time, bounded however long the job was."""
