"""What users' code can do wrong while it runs; branches of the tree in tidegate.core.errors."""

from tidegate.core.errors import TidegateError


class UndeclaredOutletError(TidegateError, LookupError):
    """An outlet was touched that the job's definition does not declare."""


class OutletTypeError(TidegateError, TypeError):
    """An outlet was given a value of the wrong type."""


class UnresolvedAliasError(TidegateError, ValueError):
    """Partition keys were added to an alias that stands for no asset in the run (rule D13)."""


class ProducerStateError(TidegateError, RuntimeError):
    """A producer was used before it was started or after it was stopped."""


class KafkaUnreachableError(TidegateError, ConnectionError):
    """No broker answers at the given address."""


class TopicMissingError(TidegateError, RuntimeError):
    """A topic that is needed does not exist; asking Kafka for it could create it with the wrong settings."""


class WorkerError(TidegateError, RuntimeError):
    """A worker that cannot work as it was declared."""


class TemplateError(TidegateError, ValueError):
    """A template that cannot be read, or names something that a run does not have."""


class JobFailed(TidegateError, RuntimeError):
    """Raised by a job's function to fail its run with a message for people, without the place in the code."""
