"""The losses in other training loops: Hugging Face's Trainer and Lightning. Each module needs its own extra."""
