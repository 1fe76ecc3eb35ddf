"""`autotune.softmax` as torch.compile traces it. Imported by the trace alone, so that the operator exists before it is asked for."""

from autotune.dispatch import default_dispatcher
from autotune.dispatch.torch_operator import operator

SOFTMAX = operator(default_dispatcher())
new, into = SOFTMAX.new, SOFTMAX.into
