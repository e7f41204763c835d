"""MaxText 0.2.5 itself trains, on the CPU. Runs in the environment `maxtext` (scripts/setup_test_env.sh maxtext), one process for many runs:

    python maxtext_train.py JOB.json RESULT.json

JOB: a list of steps, done in order: {"train": name, "model_name": ..., "settings": {MaxText's settings}}, or {"call": [program, words]}, what is to be
done between two runs. RESULT: {name: {step: loss}}, losses as MaxText logs them.
"""
import json
import os
import subprocess
import sys

os.environ |= {"JAX_PLATFORMS": "cpu", "DECOUPLE_GCLOUD": "TRUE", "HF_HUB_OFFLINE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}


def train(job, work):
    from maxtext.trainers.pre_train import train as pre_train
    from maxtext.utils.globals import MAXTEXT_CONFIGS_DIR

    metrics = os.path.join(work, f"{job['train']}.metrics")
    words = dict(model_name=job["model_name"], override_model_config=True, run_name=job["train"], base_output_directory=os.path.join(work, "runs"), hardware="cpu",
                 skip_jax_distributed_system=True, attention="dot_product", dtype="float32", weight_dtype="float32", matmul_precision="highest", float32_logits=True,
                 per_device_batch_size=2, max_target_length=32, max_prefill_predict_length=16, dataset_type="synthetic", enable_checkpointing=True,
                 async_checkpointing=False, save_checkpoint_on_completion=False, metrics_file=metrics, enable_tensorboard=False, enable_goodput_recording=False,
                 monitor_goodput=False, enable_checkpoint_cloud_logger=False, learning_rate=1e-2, learning_rate_schedule_steps=40, dump_step=-1, **job["settings"])
    config, recorder = pre_train.initialize(["train", os.path.join(MAXTEXT_CONFIGS_DIR, "base.yml")] + [f"{key}={value}" for key, value in words.items()])
    pre_train.run(config, recorder)
    losses = {}
    with open(metrics) as file:
        for line in file:
            row = json.loads(line)
            if "learning/loss" in row:
                losses[int(row["step"])] = row["learning/loss"]
    return losses


def main(job_file, result_file):
    with open(job_file) as file:
        jobs = json.load(file)
    work = os.path.dirname(os.path.abspath(job_file))
    import jax
    jax.config.update("jax_compilation_cache_dir", os.path.join(work, "compiled"))  # runs of one model are compiled once
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    results = {}
    for job in jobs:
        if "call" in job:
            done = subprocess.run(job["call"], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f"{job['call']}\n{done.stdout}\n{done.stderr}")
            continue
        results[job["train"]] = train(job, work)
        with open(result_file, "w") as file:
            json.dump(results, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
