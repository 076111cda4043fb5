"""What the server that ranks are forked from loads once: else each rank's first optimizer loads the compiler, for seconds."""

import torch
import torch._dynamo

import tests.torch.reforming
import tests.torch.savers

torch.set_num_threads(1)
torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])
LOADED = (tests.torch.savers.__name__, tests.torch.reforming.__name__)
