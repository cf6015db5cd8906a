"""What arguments a handler takes: checked when a job is made, converted when it runs."""

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import Any, NotRequired, Required, TypedDict, cast

import msgspec
import msgspec.inspect

from yaoki.core.errors import InvalidArguments, InvalidOption

_Kind = inspect.Parameter


class Signature:
    """The parameters of a handler, the context left out.

    Types are looked up when first needed, so that a handler may name classes that are defined
    below it. A parameter whose type is unknown, or is none that JSON can become, takes anything.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        context: type,
        secret: Collection[str] = (),
    ) -> None:
        self._function, self._name, self._secret = function, name, secret
        parameters = list(inspect.signature(function).parameters.values())
        self.context = next((p.name for p in parameters if _is_context(p, context)), None)
        self._parameters = [p for p in parameters if p.name != self.context]
        for parameter in self._parameters:
            if parameter.kind in (_Kind.VAR_POSITIONAL, _Kind.POSITIONAL_ONLY):
                raise InvalidOption(
                    f"job type {name!r}: the parameter {parameter.name!r} cannot be given by "
                    "name, and a payload has only names; make it an ordinary parameter"
                )
        self.open = any(p.kind is _Kind.VAR_KEYWORD for p in self._parameters)
        self._named = [p for p in self._parameters if p.kind is not _Kind.VAR_KEYWORD]
        self.names = frozenset(parameter.name for parameter in self._named)

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments by name, also those that were given by position."""
        if not args:
            return dict(kwargs)
        if len(args) > len(self._named):
            raise InvalidArguments(
                f"{self._name} takes {len(self._named)} arguments, {len(args)} were given"
            )
        payload = {parameter.name: arg for parameter, arg in zip(self._named, args, strict=False)}
        if twice := payload.keys() & kwargs.keys():
            raise InvalidArguments(f"{self._name} got {min(twice)!r} twice")
        payload.update(kwargs)
        return payload

    def check(self, text: str) -> None:
        """Raise InvalidArguments unless this JSON fits: nothing missing, unknown or mistyped."""
        self.convert(text)

    def convert(self, text: str) -> dict[str, Any]:
        """The handler's keyword arguments out of JSON, in the types of its signature."""
        try:
            arguments: dict[str, Any] = self._decoder.decode(text)
        except msgspec.ValidationError as error:
            told = self._told(str(error))
            raise InvalidArguments(f"{self._name}: {told}; it takes {self._described()}") from None
        except msgspec.DecodeError as error:
            raise InvalidArguments(f"{self._name}: its payload is unreadable: {error}") from None
        if self.open:
            return cast(dict[str, Any], msgspec.json.decode(text)) | arguments
        if not self._has_no_others(text, len(arguments)):
            self._refuse_unknown(text)
        return arguments

    def _refuse_unknown(self, text: str) -> None:
        given = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        unknown = sorted(given.keys() - self.names)
        if unknown:
            raise InvalidArguments(
                f"{self._name} has no argument {unknown[0]!r}; it takes {self._described()}"
            )

    def _told(self, error: str) -> str:
        """What is wrong, without the value when that is nobody's business."""
        for name in self._secret:
            if f"`$.{name}" in error:
                return f"the value of {name} does not fit - at `$.{name}`"
        return error

    def _has_no_others(self, text: str, known: int) -> bool:
        # Counting colons is a lower bound that spares most payloads a second decoding.
        return text.count('":') <= known

    def _described(self) -> str:
        listed = ", ".join(str(parameter) for parameter in self._named) or "no arguments"
        return f"({listed}{', **anything' if self.open else ''})" if self._named else listed

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        fields = {p.name: self._field(p) for p in self._named}
        arguments = TypedDict("arguments", fields)  # type: ignore[misc]
        return msgspec.json.Decoder(arguments, dec_hook=_convert)

    def _field(self, parameter: inspect.Parameter) -> Any:
        hint = self._hints.get(parameter.name, Any)
        hint = hint if _decodable(hint) else Any
        required = parameter.default is _Kind.empty
        return Required[hint] if required else NotRequired[hint]

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self._function, include_extras=True)
        except Exception:
            # One name that cannot be looked up must not take the other types away.
            annotations = getattr(self._function, "__annotations__", {})
            return {name: hint for name, hint in annotations.items() if not isinstance(hint, str)}


def _is_context(parameter: inspect.Parameter, context: type) -> bool:
    annotation = parameter.annotation
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2].strip("\"' ") == context.__name__
    return annotation is context


def _decodable(hint: Any) -> bool:
    try:
        msgspec.json.Decoder(hint, dec_hook=_convert)
        return _is_known(msgspec.inspect.type_info(hint))
    except (TypeError, RuntimeError):
        return False


def _is_known(info: Any) -> bool:
    """Is there no class in it that neither msgspec nor pydantic can make of JSON?"""
    if isinstance(info, msgspec.inspect.CustomType):
        return hasattr(info.cls, "model_validate")
    if isinstance(info, tuple):
        return all(map(_is_known, info))
    if isinstance(info, msgspec.inspect.Type) and not hasattr(info, "cls"):
        return all(_is_known(getattr(info, name)) for name in info.__struct_fields__)
    return True


def _convert(kind: type, value: Any) -> Any:
    """A class that msgspec does not know: a pydantic model by its own rules, others as is."""
    validate = getattr(kind, "model_validate", None)
    if validate is None:
        return value
    try:
        return validate(value)
    except ValueError as error:
        raise msgspec.ValidationError(_first_line(error)) from None


def _first_line(error: ValueError) -> str:
    errors = getattr(error, "errors", None)
    found = errors(include_input=False, include_url=False) if callable(errors) else []
    if not found:
        return "it does not fit the model"
    where = ".".join(str(part) for part in found[0]["loc"])
    return f"{found[0]['msg']} at {where}" if where else str(found[0]["msg"])
