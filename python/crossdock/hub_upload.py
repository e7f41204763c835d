# SPDX-License-Identifier: Apache-2.0
"""A post-save hook that uploads each export to the Hugging Face Hub in the background.

    HUB_UPLOAD_REPO=me/my-model crossdock watch RUN OUT --to hf --hook crossdock.hub_upload.upload

and in a trainer `Exporter(..., post_hook="crossdock.hub_upload.upload")`. The hook returns at once: it makes a snapshot of hard links in
`.uploading` beside the export, so that whoever removes old exports does not pull files from under an upload, and queues it. When the queue is full the
export is not uploaded, with a warning. `flush` waits for what is queued. What is queued is lost when the process is killed.

The environment says where to:
    HUB_UPLOAD_REPO      the model's repository, `owner/name`; made where it does not exist
    HUB_UPLOAD_FOLDER    the folder in it, a template as in Python's format: default `iter_{rollout_id:07d}`; empty: the root
    HUB_UPLOAD_PRIVATE   `false` makes a new repository public
The token is huggingface_hub's own (HF_TOKEN or `hf auth login`). Needs the package huggingface_hub, imported at the first upload.
"""

import fcntl
import logging
import os
import queue
import shutil
import threading
import time

QUEUE = 4            # exports that wait
WORKERS = 2          # uploads at once
ATTEMPTS = 3
FOLDER = "iter_{rollout_id:07d}"

log = logging.getLogger("crossdock.hub_upload")


def link_tree(source, target):
    """Makes `target` a copy of the directory `source` whose files are hard links: no bytes are copied, both must be on one file system."""
    shutil.copytree(source, target, copy_function=os.link)


class Uploader:
    """Uploads snapshots of exports, a few at a time, in threads of its own.

    repo: `owner/name`. folder: template of the folder in it. api: what has `create_repo` and `upload_folder` of huggingface_hub.HfApi; made
    at the first upload where it is None. heartbeat: seconds between two lines about an upload that goes on.
    """

    def __init__(self, repo, *, folder=FOLDER, private=True, api=None, size=QUEUE, workers=WORKERS, heartbeat=60.0, pause=5.0):
        folder.format(rollout_id=0)  # a wrong template is found now
        self.repo, self.folder, self.private, self.api = repo, folder, private, api
        self.size, self.heartbeat, self.pause = size, heartbeat, pause
        self._changed, self._opening = threading.Condition(), threading.Lock()
        self._waiting, self._busy, self._made = 0, 0, False
        self._queue = queue.Queue()
        self._homes = {}
        self._since = {}       # snapshot -> (rollout, when its upload began)
        threading.Thread(target=self._tell, name="crossdock-upload-heartbeat", daemon=True).start()
        for number in range(workers):
            threading.Thread(target=self._work, name=f"crossdock-upload-{number}", daemon=True).start()

    def submit(self, hf_path, rollout_id):
        """Takes a snapshot of a finished export and queues it. False, with a warning, when the queue is full."""
        with self._changed:
            if self._waiting >= self.size:
                log.warning("%d exports wait for their upload already: %s is not uploaded", self._waiting, hf_path)
                return False
            self._waiting += 1
        try:
            home = os.path.join(os.path.dirname(os.path.abspath(hf_path)), ".uploading")
            self._open(home)
            snapshot = os.path.join(home, f"{os.path.basename(os.path.normpath(hf_path))}.{os.getpid()}.{time.monotonic_ns()}")
            link_tree(hf_path, snapshot)
        except BaseException:
            with self._changed:
                self._waiting -= 1
                self._changed.notify_all()
            raise
        self._queue.put((snapshot, rollout_id))
        return True

    def flush(self, timeout_sec=600.0):
        """Waits until nothing is queued or on its way. False when that took longer than `timeout_sec` seconds."""
        with self._changed:
            done = self._changed.wait_for(lambda: self._waiting + self._busy == 0, timeout_sec)
        if not done:
            log.warning("uploads were not done within %g s", timeout_sec)
        return done

    def _open(self, home):
        """Makes the place of snapshots; what a killed process left there goes, unless another one uploads from it now."""
        if home in self._homes:
            return
        os.makedirs(home, exist_ok=True)
        lock = open(os.path.join(home, ".lock"), "w")  # noqa: SIM115 - held as long as the process lives
        self._homes[home] = lock
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fcntl.flock(lock, fcntl.LOCK_SH)  # somebody else's: theirs stay
            return
        for name in os.listdir(home):
            if name != ".lock":
                shutil.rmtree(os.path.join(home, name), ignore_errors=True)
        fcntl.flock(lock, fcntl.LOCK_SH)

    def _work(self):
        while True:
            snapshot, rollout_id = self._queue.get()
            with self._changed:
                self._waiting -= 1
                self._busy += 1
            try:
                self._upload(snapshot, rollout_id)
            except Exception:
                log.exception("rollout %s was not uploaded to %s", rollout_id, self.repo)
            finally:
                shutil.rmtree(snapshot, ignore_errors=True)
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()

    def _upload(self, snapshot, rollout_id):
        with self._opening:
            if self.api is None:
                from huggingface_hub import HfApi

                self.api = HfApi()
            if not self._made:
                self.api.create_repo(self.repo, private=self.private, exist_ok=True, repo_type="model")
                self._made = True
        with self._changed:
            self._since[snapshot] = (rollout_id, time.monotonic())
        try:
            for attempt in range(1, ATTEMPTS + 1):
                try:
                    self.api.upload_folder(repo_id=self.repo, folder_path=snapshot, path_in_repo=self.folder.format(rollout_id=rollout_id) or None,
                                           commit_message=f"rollout {rollout_id}", repo_type="model")  # fmt: skip
                    break
                except Exception:
                    if attempt == ATTEMPTS:
                        raise
                    log.warning("the upload of rollout %s failed, attempt %d of %d", rollout_id, attempt, ATTEMPTS, exc_info=True)
                    time.sleep(self.pause * attempt)
        finally:
            with self._changed:
                del self._since[snapshot]
        log.info("rollout %s is in %s", rollout_id, self.repo)

    def _tell(self):
        """One thread for all uploads, started with the others: none can be started while the program ends, when what is queued still goes up."""
        while True:
            time.sleep(self.heartbeat)
            with self._changed:
                begun = list(self._since.values())
            for rollout_id, start in begun:
                log.info("rollout %s is being uploaded to %s since %.0f s", rollout_id, self.repo, time.monotonic() - start)


_uploader = None
_lock = threading.Lock()


def _the_one():
    global _uploader
    with _lock:
        if _uploader is None:
            repo = os.environ.get("HUB_UPLOAD_REPO", "")
            if not repo:
                raise ValueError("HUB_UPLOAD_REPO must name the repository to upload to, owner/name")
            private = os.environ.get("HUB_UPLOAD_PRIVATE", "true").lower() not in ("false", "0")
            _uploader = Uploader(repo, folder=os.environ.get("HUB_UPLOAD_FOLDER", FOLDER), private=private)
        return _uploader


def upload(args, hf_path, rollout_id, *, dtype, is_lora):
    """The hook. Raises ValueError without HUB_UPLOAD_REPO, OSError when no snapshot can be made."""
    _the_one().submit(hf_path, rollout_id)


def flush(timeout_sec=600.0):
    """Waits for the uploads; False when they took longer than `timeout_sec` seconds."""
    return _uploader is None or _uploader.flush(timeout_sec)
