from typing import Callable, Optional

_Progress = Optional[Callable[[str, int, int, str], object]]
_Notice = Optional[Callable[[str], object]]

def run_command(
    command: str, paths: list[str], options: list[tuple[str, list[str]]], progress: _Progress, notice: _Notice
) -> tuple[str, str, bool, bool, list[str]]: ...
def version() -> str: ...
