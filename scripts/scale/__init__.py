"""The parts of scripts/bench_scale.py."""
