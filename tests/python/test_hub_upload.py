"""The hook that uploads, with a hub that is made of a dict."""
import logging
import os
import pathlib
import threading
import time

import pytest

from crossdock import hub_upload


class Hub:
    """Keeps what is uploaded; `gate` holds uploads back, `failures` is how many of them fail first."""

    def __init__(self, failures=0):
        self.files, self.made, self.gate, self.failures, self.most, self.now = {}, [], threading.Event(), failures, 0, 0
        self._lock = threading.Lock()
        self.gate.set()

    def create_repo(self, repo, *, private, exist_ok, repo_type):
        self.made.append((repo, private, exist_ok, repo_type))

    def upload_folder(self, *, repo_id, folder_path, path_in_repo, commit_message, repo_type):
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.gate.wait(60)
        with self._lock:
            self.now -= 1
            if self.failures > 0:
                self.failures -= 1
                raise ConnectionError("the line is down")
        for path in pathlib.Path(folder_path).rglob("*"):
            if path.is_file():
                self.files[f"{path_in_repo}/{path.relative_to(folder_path)}"] = path.read_bytes()


def export(folder, number):
    made = folder / f"iter_{number:07d}"
    (made / "deep").mkdir(parents=True)
    (made / "config.json").write_text(f"{number}")
    (made / "deep" / "x").write_bytes(bytes(1000))
    return made


def uploader(hub, **more):
    return hub_upload.Uploader("me/model", api=hub, pause=0.0, **more)


def snapshots(folder):
    return [name for name in os.listdir(folder / ".uploading") if name != ".lock"]


def test_what_is_exported_is_uploaded(tmp_path):
    hub = Hub()
    up = uploader(hub)
    for number in (10, 20):
        assert up.submit(str(export(tmp_path, number)), number)
    assert up.flush(60)
    assert hub.files["iter_0000010/config.json"] == b"10" and hub.files["iter_0000020/deep/x"] == bytes(1000) and len(hub.files) == 4
    assert hub.made == [("me/model", True, True, "model")]
    assert snapshots(tmp_path) == []


def test_a_rotated_export_is_uploaded_all_the_same(tmp_path):
    hub = Hub()
    hub.gate.clear()
    up = uploader(hub)
    made = export(tmp_path, 10)
    up.submit(str(made) + "/", 10)
    assert os.stat(made / "config.json").st_nlink == 2          # a link, not a copy
    for path in (made / "config.json", made / "deep" / "x"):
        path.unlink()
    assert not up.flush(0.05)
    hub.gate.set()
    assert up.flush(60)
    assert hub.files["iter_0000010/config.json"] == b"10"


def test_a_long_upload_is_told_until_it_ends(tmp_path, caplog):
    hub = Hub()
    hub.gate.clear()
    with caplog.at_level(logging.INFO, "crossdock.hub_upload"):
        up = uploader(hub, heartbeat=0.02)
        up.submit(export(tmp_path, 10), 10)
        end = time.monotonic() + 60
        while "rollout 10 is being uploaded to me/model" not in caplog.text and time.monotonic() < end:
            time.sleep(0.01)
        hub.gate.set()
        assert up.flush(60)
    assert "rollout 10 is being uploaded to me/model" in caplog.text and up._since == {}


def test_a_full_queue_drops_with_a_warning(tmp_path, caplog):
    hub = Hub()
    hub.gate.clear()
    up = uploader(hub)
    taken = []
    for number in range(8):
        taken.append(up.submit(export(tmp_path, number), number))
        end = time.monotonic() + 30
        while hub.now < min(number + 1, hub_upload.WORKERS) and time.monotonic() < end:
            time.sleep(0.005)
    assert taken == [True] * (hub_upload.WORKERS + hub_upload.QUEUE) + [False] * 2
    assert "is not uploaded" in caplog.text
    hub.gate.set()
    assert up.flush(60)
    assert hub.most == hub_upload.WORKERS
    assert len(hub.files) == 2 * (hub_upload.WORKERS + hub_upload.QUEUE)


@pytest.mark.parametrize("failures", [2, 3])
def test_failures_are_tried_again_and_told(tmp_path, caplog, failures):
    hub = Hub(failures)
    up = uploader(hub)
    up.submit(export(tmp_path, 10), 10)
    assert up.flush(60)
    assert (hub.files != {}) == (failures < hub_upload.ATTEMPTS)
    assert ("was not uploaded" in caplog.text) == (failures == hub_upload.ATTEMPTS)
    assert snapshots(tmp_path) == []


def test_what_a_killed_process_left_goes(tmp_path):
    left = tmp_path / ".uploading" / "iter_0000001.99.1"
    left.mkdir(parents=True)
    (left / "x").write_text("old")
    hub = Hub()
    hub.gate.clear()
    first = uploader(hub)
    first.submit(export(tmp_path, 10), 10)
    assert not left.exists() and len(snapshots(tmp_path)) == 1
    second = uploader(hub)                                      # another one's are left alone
    second.submit(export(tmp_path, 20), 20)
    assert len(snapshots(tmp_path)) == 2
    hub.gate.set()
    assert first.flush(60) and second.flush(60)


def test_as_a_hook(tmp_path, monkeypatch):
    assert hub_upload.flush()
    monkeypatch.delenv("HUB_UPLOAD_REPO", raising=False)
    with pytest.raises(ValueError, match="HUB_UPLOAD_REPO"):
        hub_upload.upload(None, str(export(tmp_path, 10)), 10, dtype="bf16", is_lora=False)
    monkeypatch.setenv("HUB_UPLOAD_REPO", "me/model")
    monkeypatch.setenv("HUB_UPLOAD_FOLDER", "r{rollout_id}")
    monkeypatch.setattr(hub_upload, "_uploader", None)
    hub = Hub()
    hub_upload._the_one().api = hub
    hub_upload.upload(None, str(tmp_path / "iter_0000010"), 10, dtype="bf16", is_lora=False)
    assert hub_upload.flush(60)
    assert hub.files["r10/config.json"] == b"10"
