from typing import Any, Callable, Optional

_Progress = Optional[Callable[[str, int, int, str], object]]
_Notice = Optional[Callable[[str], object]]
_Options = list[tuple[str, list[str]]]

def run_command(
    command: str, paths: list[str], options: _Options, progress: _Progress, notice: _Notice
) -> tuple[str, str, bool, bool, list[str]]: ...
def version() -> str: ...

class Tensor:
    @property
    def dtype(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def nbytes(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __dlpack__(self, **options: Any) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def __len__(self) -> int: ...

class View:
    def __init__(self, path: str, options: _Options, notice: _Notice) -> None: ...
    def keys(self) -> list[str]: ...
    def offset_keys(self) -> list[str]: ...
    def metadata(self) -> dict[str, str]: ...
    def facts(self, name: str) -> tuple[str, tuple[int, ...]]: ...
    def read(self, name: str, offsets: list[int], sizes: list[int], shape: list[int]) -> Tensor: ...
    @property
    def notices(self) -> list[str]: ...
    @property
    def bytes_read(self) -> int: ...

_Place = tuple[int, int, int, int]
_Step = Optional[tuple[int, bool]]
_Address = tuple[str, int, int, str, tuple[int, ...]]

def array_of(object: Any, writable: bool) -> Optional[tuple[tuple[int, int, str, int, tuple[int, ...], tuple[int, ...]], bool, object]]: ...
def place_of_rank(layout: LayoutOptions, rank: int, world_size: int, context_parallel: int) -> _Place: ...
def detect_resume(
    load: str, pretrained: str, step: _Step, no_optim: bool, no_rng: bool
) -> tuple[str, str, str, Optional[int], bool, bool, bool, bool, str, list[str]]: ...

class LayoutOptions:
    tp: int
    pp: int
    ep: int
    etp: int
    encoder_tp: int
    pipeline_layers: list[int]
    first_stage_layers: Optional[int]
    last_stage_layers: Optional[int]
    vpp: int
    layers_per_virtual_stage: Optional[int]
    pipeline_layout: str
    account_for_embedding: bool
    account_for_loss: bool
    given: bool
    def __init__(self) -> None: ...

class LoadOptions:
    path: str
    source_format: Optional[str]
    step: _Step
    family: Optional[str]
    rules: Optional[str]
    hf_template: Optional[str]
    layout: LayoutOptions
    place: _Place
    dtype: Optional[str]
    keep_dtype: list[str]
    consumer: str
    local_layers: bool
    grouped_experts: bool
    vocab_divisor: Optional[int]
    padded_vocab: Optional[int]
    mtp: str
    set_args: list[tuple[str, str]]
    allow: list[str]
    def __init__(self) -> None: ...

class LoadPlan:
    @staticmethod
    def make(options: LoadOptions, progress: _Progress) -> LoadPlan: ...
    def tensors(self) -> list[tuple[str, str, list[int]]]: ...
    def notices(self) -> list[str]: ...
    def read_into(
        self, addresses: list[_Address], threads: int, memory: int, strict: bool, cast: bool, progress: _Progress
    ) -> tuple[int, int, int, int]: ...

class Comm:
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    def allgather_bytes(self, bytes: bytes, /) -> list[bytes]: ...

def file_comm(dir: str, rank: int, size: int, timeout: float) -> Comm: ...

class Fp8Request:
    strategy: Optional[str]
    block: Optional[tuple[int, int]]
    scale_fmt: Optional[str]
    format: Optional[str]
    arith: Optional[str]
    skip: list[str]
    only: list[str]
    check_tp: Optional[int]
    def __init__(self) -> None: ...

class ExportOptions:
    to: str
    states: list[str]
    distributed_optimizer: bool
    dst: str
    overwrite: bool
    reference: str
    family: Optional[str]
    rules: Optional[str]
    layout: LayoutOptions
    place: _Place
    dtype: Optional[str]
    keep_dtype: list[str]
    fp8: Fp8Request
    max_shard_bytes: int
    mtp: str
    local_layers: bool
    grouped_experts: bool
    vocab_divisor: Optional[int]
    padded_vocab: Optional[int]
    set_args: list[tuple[str, str]]
    run_args: list[tuple[str, str]]
    allow: list[str]
    memory: int
    threads: int
    snapshot: bool
    def __init__(self) -> None: ...

class ExportJob:
    def done(self) -> bool: ...
    def wait(self, seconds: float) -> tuple[str, int, int, int, int, int, float]: ...

class Exporter:
    @staticmethod
    def make(options: ExportOptions, comm: Optional[Any]) -> Exporter: ...
    def validate(self) -> None: ...
    def tensors(self) -> list[tuple[str, str, list[int]]]: ...
    def save(self, step: int, addresses: list[_Address], progress: _Progress, common: bytes) -> ExportJob: ...
    def refuse(self, step: int, why: str) -> None: ...
