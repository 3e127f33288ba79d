"""The laboratory: experiments and their report, trainings, benchmarks. It may import everything."""
