"""Operators and modules of PyTorch as ranges, so that a recording says which of them launched what.

    with gputrace.torch.operators():
        train()

Operators are marked by PyTorch itself where it is built for CUDA (`torch.autograd.profiler.emit_nvtx`), which is cheap, and by a
`TorchDispatchMode` elsewhere, or where the types of inputs are wanted. Modules are marked as `torch.profiler` names them. Where
nothing records, all of it does nothing.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

from . import nvtx

__all__ = ["disable", "enable", "operators"]

_Push = Callable[[bytes], int]
_Pop = Callable[[], int]


class operators(contextlib.ContextDecorator):
    """Marks operators and modules of the calling thread, and of the backward passes that it starts, while its body runs.

    `shapes`: with the sizes of inputs. `types`: with their types too, which PyTorch's own ranges do not have: each operator then
    goes through Python, which takes tens of times as long. `modules`: modules as well. `functions`: all functions of Python as well, as
    `gputrace.functions` does.
    """

    def __init__(self, shapes: bool = True, types: bool = False, modules: bool = True, functions: bool = False) -> None:
        self.shapes = shapes
        self.types = types
        self.modules = modules
        self.functions = functions
        self._entered: List[contextlib.ExitStack] = []

    def __enter__(self) -> operators:
        stack = contextlib.ExitStack()
        functions = nvtx._functions()
        if functions is not None:
            with contextlib.ExitStack() as entering:
                if self.functions:
                    from .functions import functions as functions_of_python

                    entering.enter_context(functions_of_python())
                if self.modules:
                    entering.enter_context(_modules(*functions))
                entering.enter_context(self._operators(*functions))
                stack = entering.pop_all()
        self._entered.append(stack)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._entered.pop().__exit__(*exception)

    def _operators(self, push: _Push, pop: _Pop) -> contextlib.AbstractContextManager[Any]:
        import torch

        if torch.version.cuda is not None and torch.cuda.is_available() and not self.types:
            emitted: contextlib.AbstractContextManager[Any] = torch.autograd.profiler.emit_nvtx(record_shapes=self.shapes)
            return emitted
        return _dispatched(push, pop, self.shapes or self.types, self.types)


_enabled: Optional[operators] = None


def enable(shapes: bool = True, types: bool = False, modules: bool = True, functions: bool = False) -> None:
    """Marks operators and modules from now on: `operators` for programs without a place for a `with`."""
    global _enabled
    disable()
    _enabled = operators(shapes, types, modules, functions)
    _enabled.__enter__()


def disable() -> None:
    """Ends what `enable` began; does nothing otherwise."""
    global _enabled
    enabled, _enabled = _enabled, None
    if enabled is not None:
        enabled.__exit__(None, None, None)


class _Names:
    """Modules by class and number, counted as they are first seen: "nn.Module: Linear_0"."""

    def __init__(self) -> None:
        # By id, which is looked up in a third of the time that a WeakKeyDictionary takes.
        self._names: Dict[int, Tuple[weakref.ref[Any], bytes]] = {}
        self._counts: Dict[str, int] = {}
        self._lock = threading.Lock()

    def of(self, module: Any) -> bytes:
        known = self._names.get(id(module))
        return known[1] if known is not None and known[0]() is module else self._add(module)

    def _add(self, module: Any) -> bytes:
        name, key = type(module).__name__, id(module)
        with self._lock:
            number = self._counts.get(name, 0)
            self._counts[name] = number + 1
        text = f"nn.Module: {name}_{number}".encode("utf-8", "replace")

        def forget(dead: weakref.ref[Any]) -> None:
            known = self._names.get(key)
            if known is not None and known[0] is dead:
                del self._names[key]

        self._names[key] = (weakref.ref(module, forget), text)
        return text


# One for the process, as torch.profiler has it: a module keeps its number.
_names = _Names()


@contextlib.contextmanager
def _modules(push: _Push, pop: _Pop) -> Any:
    """Hooks around the forward pass of all modules. All threads have them, as PyTorch's hooks are."""
    from torch.nn.modules import module as hooks

    is_compiling = _is_compiling()
    name_of = _names.of
    local = threading.local()

    def before(module: Any, inputs: Any) -> None:
        if is_compiling():
            return
        try:
            open_modules = local.modules
        except AttributeError:
            open_modules = local.modules = []
        push(name_of(module))
        open_modules.append(module)

    def after(module: Any, inputs: Any, output: Any) -> None:
        if is_compiling():
            return
        open_modules = getattr(local, "modules", None)
        if not open_modules:
            return
        if open_modules[-1] is module:
            open_modules.pop()
            pop()
        elif any(one is module for one in open_modules):
            # Those inside it were left without a call of this: by what is no Exception, or in versions without `always_call`.
            last = None
            while last is not module:
                last = open_modules.pop()
                pop()

    handles = [hooks.register_module_forward_pre_hook(before)]
    try:
        # Since PyTorch 2.1: also where forward raises.
        handles.append(hooks.register_module_forward_hook(after, always_call=True))
    except TypeError:
        handles.append(hooks.register_module_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
        # This may be inside of modules, whose hooks will not be called any more.
        for _ in getattr(local, "modules", []):
            pop()


def _is_compiling() -> Callable[[], bool]:
    """What torch.compile takes for true while it traces: hooks are left out of what it compiles."""
    import torch

    compiler = getattr(torch, "compiler", None)
    return getattr(compiler, "is_compiling", None) or (lambda: False)


#: What PyTorch's profiler calls types (`caffe2::TypeMeta::name`).
_TYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "c10::Half",
    "bfloat16": "c10::BFloat16",
    "int64": "long int",
    "int32": "int",
    "int16": "short int",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
    "complex64": "c10::complex<float>",
    "complex128": "c10::complex<double>",
    "float8_e4m3fn": "c10::Float8_e4m3fn",
    "float8_e4m3fnuz": "c10::Float8_e4m3fnuz",
    "float8_e5m2": "c10::Float8_e5m2",
    "float8_e5m2fnuz": "c10::Float8_e5m2fnuz",
}


def _dispatched(push: _Push, pop: _Pop, shapes: bool, types: bool) -> contextlib.AbstractContextManager[Any]:
    """Operators as they come to a `TorchDispatchMode`: those that autograd and decompositions have arrived at.

    Texts are those of emit_nvtx, "aten::mm, seq = 5, sizes = [[2, 3], [3, 4]]", with `types` behind them.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    Tensor = torch.Tensor
    autograd = torch._C._autograd
    next_sequence = getattr(autograd, "_get_sequence_nr", None)
    current_node = getattr(torch._C, "_current_autograd_node", lambda: None)

    @functools.lru_cache(maxsize=None)
    def type_of(dtype: Any) -> str:
        name = str(dtype).replace("torch.", "")
        return _TYPES.get(name, name)

    @functools.lru_cache(maxsize=None)
    def signature(function: Any) -> Tuple[str, List[Tuple[str, Any]]]:
        schema = function._schema
        return schema.name, [(one.name, one.default_value) for one in schema.arguments]

    def size_and_type(value: Any) -> Tuple[str, str]:
        if isinstance(value, Tensor):
            return str(list(value.shape)), type_of(value.dtype)
        if isinstance(value, (list, tuple)):
            if value and isinstance(value[0], Tensor):
                return str([list(one.shape) for one in value if isinstance(one, Tensor)]), "TensorList"
            return "[]", "ScalarList"
        return "[]", "Scalar" if isinstance(value, (bool, int, float)) else ""

    def text(function: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], sequence: Optional[int]) -> bytes:
        name, parameters = signature(function)
        parts = [name]
        if sequence is not None:
            parts.append(f"seq = {sequence}")
        if shapes:
            given = len(args)
            values = [
                args[place] if place < given else kwargs.get(key, default)
                for place, (key, default) in enumerate(parameters)
            ]
            described = [size_and_type(value) for value in values]
            parts.append("sizes = [" + ", ".join([size for size, _ in described]) + "]")
            if types:
                parts.append('types = ["' + '", "'.join([one for _, one in described]) + '"]' if described else "types = []")
        return ", ".join(parts).encode()

    # By thread, as autograd counts: the number that the next node gets, when it was looked at last.
    seen = threading.local()

    def new_sequence() -> Optional[int]:
        if next_sequence is None:
            return None
        coming = next_sequence()
        before = getattr(seen, "coming", coming)
        seen.coming = coming
        # Autograd makes an operator's node before the operator comes here. Those that have none leave the number as it is.
        return coming - 1 if coming != before else None

    new_sequence()

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            node = current_node()
            pushed = 1
            if node is not None:
                # Nobody says when a node begins and ends: each of its operators has it around itself.
                name, number = node.name(), node._sequence_nr()
                behind = f", seq = {number}" if 0 <= number < 1 << 32 else ""
                push(f"autograd::engine::evaluate_function: {name}{behind}".encode("utf-8", "replace"))
                push(f"{name}{behind}".encode("utf-8", "replace"))
                pushed = 3
            push(text(function, args, kwargs, new_sequence()))
            try:
                return function(*args, **kwargs)
            finally:
                for _ in range(pushed):
                    pop()

    return Mode()
