"""Names that the API server takes, and what it says of others: functions yield problems, as "spec.driver: why"."""
import re

LABEL = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}")
LABEL_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


def is_subdomain(name, longest=253):
    return len(name) <= longest and SUBDOMAIN.fullmatch(name) is not None


def is_qualified(name):
    domain, slash, identifier = name.rpartition("/")
    return IDENTIFIER.fullmatch(identifier) and (not slash or is_subdomain(domain, 63))


def is_label_name(name):
    domain, slash, rest = name.rpartition("/")
    return LABEL_NAME.fullmatch(rest) and (not slash or is_subdomain(domain))


def repeated(values):
    return sorted({str(value) for value in values if values.count(value) > 1})


def named(holder, path, key, good):
    """A name that has to be there, and to be well formed."""
    if not holder.get(key):
        yield f"{path}.{key}: Required value"
    elif not good(holder[key]):
        yield f"{path}.{key}: {holder[key]!r} is no valid name"


def driver(holder, path):
    return named(holder, path, "driver", lambda name: is_subdomain(name, 63))


def pool(holder, path, key):
    return named(holder, path, key, lambda name: len(name) <= 253 and all(is_subdomain(part) for part in name.split("/")))


def label(holder, path, key):
    return named(holder, path, key, LABEL.fullmatch)


def metadata(meta):
    yield from named(meta, "metadata", "name", is_subdomain)
    for i, owner in enumerate(meta.get("ownerReferences", [])):
        for key in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(key):
                yield f"metadata.ownerReferences[{i}].{key}: Required value"
