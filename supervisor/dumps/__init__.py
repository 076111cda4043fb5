"""Flight-recorder dumps of PyTorch, read offline: nothing of them is ever executed."""
