"""What is wrong with a job, in the order of what it cost, and how sure that is: the one judgement of a whole job."""
