from seqfit.serving.options import ServerOptions as ServerOptions
from seqfit.serving.server import run_server as run_server
