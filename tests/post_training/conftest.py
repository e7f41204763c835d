"""The real Tunix, flax, Orbax, optax and MaxText around crossdock.post_training, in the environment `maxtext` (scripts/setup_test_env.sh maxtext), one process:

    CROSSDOCK=.../crossdock CROSSDOCK_SITE=.../site-packages "$python" -m pytest -q tests/post_training
"""
import os
import pathlib
import sys

os.environ |= {"JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE", "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
               "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_DEFAULT_PRNG_IMPL": "unsafe_rbg"}
sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "oracle"))
