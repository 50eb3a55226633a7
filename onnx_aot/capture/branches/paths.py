"""Runs ``forward`` once per path through its branches on data, and joins the paths."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

import torch

from onnx_aot.capture.branches.assignments import Assignments, LeftDifferentError
from onnx_aot.capture.branches.joining import (
    SAME_KINDS,
    STRUCTURES,
    DifferentBeginningError,
    join,
)
from onnx_aot.capture.branches.meetings import Meetings, Run, follows
from onnx_aot.capture.branches.replay import replay
from onnx_aot.capture.branches.states import State, read_state
from onnx_aot.capture.branches.steps import Call, Constant, Raised, Step, ask, check, read_steps
from onnx_aot.capture.error_hints import UnjoinableError
from onnx_aot.capture.module_state import preserved_state
from onnx_aot.capture.sizes.guards import location_of_error
from onnx_aot.capture.sizes.validating_branches import Validation
from onnx_aot.metadata.user_code import is_users_file
from onnx_aot.pytrees.containers import register_containers, wrap_constants
from onnx_aot.torch_compat import (
    asserts_floats_of_data,
    current_tracer,
    fake_mode_of,
    is_computed_from,
    pytree,
    record_mark,
    record_path,
    symbolic_expression,
    without_new_conditions,
)

__all__ = ["FEWER", "Branches"]


class Limits(NamedTuple):
    """The most paths through a model, and the most questions on one of them."""

    paths: int = 48
    questions: int = 24

    def __str__(self) -> str:
        return (
            f"there are more than {self.paths} paths through them, or more than {self.questions} "
            "questions on one path"
        )


FEWER = Limits(8, 4)
"""Limits if there is a capture already, of which the paths are an improvement."""


class Branches:
    """Both ways of the branches of one capture; ``Settings.branches``.

    Args:
        module: The model.
        is_asked: Tells whether the present question is one of the model's code.
        decided: Called as ``Settings.decided``.
        validations: Gets the ends of paths at which the model raises an error.
        measure: Returns a context manager around the capture of the first path.
        limits: The most paths and questions.

    Attributes:
        filled: Names of buffers that are None before the call, and have a value of its inputs after
            it.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        is_asked: Callable[[], bool],
        decided: Callable[[str, Any, Any], None],
        validations: list[Validation],
        measure: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
        limits: Limits | None = None,
    ) -> None:
        self._module, self._is_asked, self._decided = module, is_asked, decided
        self.validations, self.measure = validations, measure
        self.limits = limits or Limits()
        self.filled: set[str] = set()
        self._path: _Path | None = None

    def wrap(self, forward: Callable[..., Any]) -> Callable[..., Any]:
        """Wraps ``forward`` so that all of its paths are captured."""

        @functools.wraps(forward)
        def forward_both_ways(*args: Any, **kwargs: Any) -> Any:
            if self._path is not None:  # forward calls itself
                return forward(*args, **kwargs)
            return _Capture(self, self._module, forward, args, kwargs).run()

        forward_both_ways.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
        return forward_both_ways

    def answer(self, node: Any) -> bool | None:
        """The answer to a question about data; None if it has to be refused.

        Args:
            node: Torch's SymNode that has the question.
        """
        path = self._path
        if path is None or path.tracer is not current_tracer() or not self._is_asked():
            return None
        expression = node.expr
        known = path.known.get(expression)
        if known is None:
            known = path.next_answer(self.limits, sys._getframe(1))
            record_mark(ask, torch.SymBool(node), known)  # type: ignore[no-untyped-call]
            path.known[expression], path.known[~expression] = known, not known
            self._decided("both", node.shape_env, expression if known else ~expression)
        return known

    @property
    def known(self) -> dict[Any, bool]:
        """Answers that were given on the present path, by question."""
        path = self._path
        return {} if path is None or path.tracer is not current_tracer() else path.known

    @contextlib.contextmanager
    def following(self, path: _Path) -> Iterator[None]:
        """Answers questions as a path needs them."""
        self._path = path
        try:
            yield
        finally:
            self._path = None

    def note_check(self, make: Callable[[Any], Any], expression: Any, message: str) -> None:
        """Records a condition that the model states about its data.

        Args:
            make: Makes a symbolic bool of an expression.
            expression: The condition.
            message: The message if it does not hold.
        """
        path = self._path
        if path is None or path.tracer is not current_tracer():
            return
        # Torch does not use what is said about floats of data when it is asked for the same.
        path.known.setdefault(expression, True)
        path.known.setdefault(~expression, False)
        of_data = any(str(symbol).startswith("u") for symbol in expression.free_symbols)
        if of_data and not record_mark(check, make(expression), message, True):
            record_mark(check, make(~expression), message, False)


class _Path:
    """One run of ``forward``: the prescribed answers, and those that were given."""

    def __init__(self, answers: Sequence[bool], choose: Callable[[State, int], bool]) -> None:
        self._prescribed, self._choose, self.answers = answers, choose, list[bool]()
        self.known: dict[Any, bool] = {}
        self.states: list[State] = []
        self.read_state: Callable[[FrameType], State]
        self.tracer: Any = None
        self.spec: Any = None

    def next_answer(self, limits: Limits, frame: FrameType) -> bool:
        position = len(self.answers)
        if position >= limits.questions:
            raise UnjoinableError(str(limits))
        state = self.read_state(frame)
        prescribed = position < len(self._prescribed)
        answer = self._prescribed[position] if prescribed else self._choose(state, position)
        self.states.append(state)
        self.answers.append(answer)
        return answer


class _Capture:
    """The paths of one call of ``forward``."""

    def __init__(
        self,
        branches: Branches,
        module: torch.nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._branches, self._module, self._forward = branches, module, forward
        self._leaves, self._spec = pytree.tree_flatten((args, kwargs))
        symbolic = (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool)
        self._positions = [i for i, leaf in enumerate(self._leaves) if isinstance(leaf, symbolic)]
        self._inputs = [self._leaves[position] for position in self._positions]
        self._results: Any = None
        self._count = 0
        self._assignments = Assignments()
        self._constants: dict[int, Constant] = {}
        self._meetings: Meetings | None = Meetings()
        self._usual: dict[Any, bool] = {}

    def run(self) -> Any:
        steps = self._solve_all()
        if isinstance(steps, Raised):
            raise UnjoinableError(f"each side raises an error, such as {_show(steps.error)}")
        self._assignments.repeat()
        return pytree.tree_unflatten(replay(steps, self._inputs), self._results)

    def _solve_all(self) -> list[Step] | Raised:
        """The steps of all paths."""
        knew_less = False  # torch, about sizes in the first path
        while True:
            try:
                steps, _ = self._solve(())
                if self._is_confirmed(steps):
                    return steps
                self._meetings, watched = None, set(self._assignments.watched.values())
            except DifferentBeginningError:
                if knew_less:
                    raise
                knew_less, watched = True, set(self._assignments.watched.values())
            except (
                LeftDifferentError
            ) as error:  # it is no harm if they are set before they are read
                watched = {*self._assignments.watched.values(), *error.changes}
                if len(watched) == len(self._assignments.watched):
                    raise
            self._count, self._assignments = 0, Assignments(watched)
            self._meetings = None if self._meetings is None else Meetings()

    def _is_confirmed(self, steps: list[Step] | Raised) -> bool:
        """True if another path, with unusual answers, is as the joined steps say."""
        if self._meetings is None or not self._meetings.used or isinstance(steps, Raised):
            return True
        self._count = 0
        for chooses in (lambda state, number: False, lambda state, number: number % 2 == 1):
            run = self._record((), chooses)
            if not isinstance(run.steps, Raised) and not follows(steps, run):
                return False
        return True

    def _solve(
        self, answers: tuple[bool, ...], run: Run | None = None
    ) -> tuple[list[Step] | Raised, Run]:
        """The steps of all paths that begin with some answers, and the path of their values."""
        number = len(answers)
        if run is None:
            run = self._record(answers)
            if self._meetings is not None and not isinstance(run.steps, Raised):
                self._meetings.add(run)
                self._meetings.meet(run, number)
        if run.open == number:
            return run.steps, run
        taken = run.answers[number]
        ways = {taken: self._solve((*answers, taken), run)}
        ways[not taken] = self._solve((*answers, not taken))
        (first, of_first), (second, of_second) = ways[True], ways[False]
        found: tuple[list[Step] | Raised, Run]
        if isinstance(first, Raised):
            found = self._require(False, second, of_second, number, first), of_second
        elif isinstance(second, Raised):
            found = self._require(True, first, of_first, number, second), of_first
        else:
            found = join(first, second, of_first.asked[number]), of_first
        if self._meetings is not None and not isinstance(found[0], Raised):
            self._meetings.remember(found[1], number, found[0])
        return found

    def _require(
        self, answer: bool, steps: list[Step] | Raised, run: Run, number: int, raised: Raised
    ) -> list[Step] | Raised:
        """Makes an assertion of a question, because the model raises an error on one side.

        Args:
            answer: The answer with which it does not.
            steps: The steps with this answer.
            run: Their path.
            number: Number of questions before this one.
            raised: The other side.
        """
        if isinstance(steps, Raised):
            return raised
        self._usual[run.states[number].place] = answer
        at = run.asked[number]
        asked = steps[at]
        leaves, spec = pytree.tree_flatten(((asked.leaves[0], _show(raised.error), answer), {}))
        is_asserted = _can_assert(asked)
        steps[at : at + 1] = [Call(check, leaves, spec, asked.node)] if is_asserted else []
        location = location_of_error(raised.error)
        if location is not None:
            lines = (location.line, location.line)
            found = Validation(answer, True, location, lines, location.text, asserted=is_asserted)
            self._branches.validations.append(found)
        return steps

    def _record(
        self,
        answers: tuple[bool, ...],
        chooses: Callable[[State, int], bool] = lambda state, number: True,
    ) -> Run:
        """Runs ``forward`` once.

        Args:
            answers: The first answers.
            chooses: Chooses the others, unless the model is known to raise an error after one. A
                loop that may go on for long shows at once if they are True.
        """
        self._count += 1
        if self._count > self._branches.limits.paths:
            raise UnjoinableError(str(self._branches.limits))

        def choose(state: State, number: int) -> bool:
            return self._usual.get(state.place, chooses(state, number))

        path = _Path(answers, choose)

        def run(*inputs: Any) -> Any:
            path.tracer = current_tracer()
            leaves = list(self._leaves)
            for position, value in zip(self._positions, inputs, strict=True):
                leaves[position] = value
            args, kwargs = pytree.tree_unflatten(leaves, self._spec)
            with self._assignments.watch():
                returned = self._forward(*args, **kwargs)
            tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
            with self._assignments.paused():
                filled = [change for change in list_changes() if change.is_filled]
                self._branches.filled.update(
                    change.path for change in filled if is_computed_from(change.read(), tensors)
                )
            register_containers(returned, "the result", "outputs")
            results, path.spec = pytree.tree_flatten(wrap_constants(returned))
            return tuple(results)

        def read(frame: FrameType) -> State:
            is_first = not path.answers  # all paths are the same there
            with self._assignments.paused():
                changes = [] if is_first else list_changes()
                return read_state(
                    frame, run.__code__, path.tracer, changes, path.known, is_first=is_first
                )

        path.read_state = read
        with (
            self._branches.following(path),
            preserved_state(self._module, elements=False) as list_changes,
            without_new_conditions(fake_mode_of(self._inputs)),
            self._branches.measure() if self._count == 1 else contextlib.nullcontext(),
        ):
            try:
                module = record_path(run, self._inputs)
            except Exception as error:
                if path.answers and _is_raised_by_model(error):
                    self._usual.setdefault(path.states[-1].place, not path.answers[-1])
                    return Run(path.answers, path.states, Raised(error), {})
                raise
            self._assignments.add_path(list_changes())
        if self._results is not None and path.spec != self._results:
            raise UnjoinableError(STRUCTURES, SAME_KINDS)
        self._results = path.spec
        return Run(path.answers, path.states, *read_steps(module, self._inputs, self._constants))


def _is_raised_by_model(error: BaseException) -> bool:
    """True if the code of the model itself raised an error, and not a function that it called.

    An error that the model raises in place of another one may be about the capture.
    """
    traceback, file = error.__traceback__, ""
    while traceback is not None:
        file, traceback = traceback.tb_frame.f_code.co_filename, traceback.tb_next
    before = error.__cause__ or error.__context__
    return is_users_file(file) and (before is None or _is_raised_by_model(before))


def _can_assert(asked: Step) -> bool:
    """True if the captured program can assert the answer to a question."""
    (node,) = asked.node.all_input_nodes
    symbols = symbolic_expression(node.meta["val"]).free_symbols
    return asserts_floats_of_data() or not any(str(symbol).startswith("zuf") for symbol in symbols)


def _show(error: BaseException) -> str:
    first = str(error).partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
