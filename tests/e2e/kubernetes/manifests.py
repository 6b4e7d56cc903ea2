"""What `kubectl apply -k` would send to the API server, for the part of kustomize that deploy/kubernetes uses.

resources, components, configMapGenerator (files alone; behavior replace), images, and patches of two forms: JSON patches
(RFC 6902) and "$patch: delete". Anything else is an error. The hash in a ConfigMap's name is not made.
"""
import copy
import pathlib
import sys

try:
    import yaml
except ImportError:  # a Python that is not the distribution's, whose packages serve as well
    sys.path.append("/usr/lib/python3/dist-packages")
    import yaml

FOLDER = pathlib.Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
KNOWN = {"apiVersion", "kind", "resources", "components", "configMapGenerator", "images", "patches"}


def documents(path):
    """The objects of a file."""
    return [each for each in yaml.safe_load_all(pathlib.Path(path).read_text()) if each]


def build(*components):
    """The objects of the base with these components."""
    return _add([], FOLDER / "base", ["../components/" + name for name in components])


def one(objects, kind, name=None):
    """The object of this kind; of several, the one with this name."""
    (found,) = [each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"])]
    return found


def _add(objects, folder, components=()):
    (file,) = documents(folder / "kustomization.yaml")
    unknown = set(file) - KNOWN
    if unknown:
        raise NotImplementedError(f"{folder}: {unknown}")
    for name in file.get("resources", []):
        objects += documents(folder / name)
    for generator in file.get("configMapGenerator", []):
        _generate(objects, folder, **generator)
    for patch in file.get("patches", []):
        objects = _patch(objects, folder, **patch)
    for image in file.get("images", []):
        _rename(objects, image["name"], f"{image['newName']}:{image['newTag']}")
    for name in [*file.get("components", []), *components]:
        objects = _add(objects, (folder / name).resolve())
    return objects


def _generate(objects, folder, name, namespace, files, behavior="create"):
    data = {file: (folder / file).read_text() for file in files}
    if behavior == "replace":
        one(objects, "ConfigMap", name)["data"] = data
    else:
        objects.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data})


def _rename(objects, name, image):
    for each in objects:
        pod = each.get("spec", {}).get("template", {}).get("spec", {})
        for container in [*pod.get("initContainers", []), *pod.get("containers", [])]:
            if container["image"] == name:
                container["image"] = image


def _patch(objects, folder, target, path=None, patch=None):
    chosen = [each for each in objects
              if each["kind"] == target["kind"] and target.get("name") in (None, each["metadata"]["name"])]
    if not chosen:
        raise ValueError(f"{folder}: nothing is {target}")
    change = yaml.safe_load((folder / path).read_text() if path else patch)
    if isinstance(change, dict) and change.get("$patch") == "delete":
        return [each for each in objects if each not in chosen]
    for each in chosen:
        for step in change:
            patched(each, **step)
    return objects


def patched(whole, op, path, value=None):
    """Changes the object by one step of a JSON patch."""
    *way, last = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    place = whole
    for part in way:
        place = place[int(part)] if isinstance(place, list) else place[part]
    if isinstance(place, list):
        last = len(place) if last == "-" else int(last)
        there = last < len(place)
    else:
        there = last in place
    if op != "add" and not there:
        raise ValueError(f"{path} is not there")
    if op == "test" and place[last] != value:
        raise ValueError(f"{path} is {place[last]!r} and not {value!r}")
    if op == "remove":
        del place[last]
    elif op == "add" and isinstance(place, list):
        place.insert(last, copy.deepcopy(value))
    elif op in ("add", "replace"):
        place[last] = copy.deepcopy(value)
    elif op != "test":
        raise NotImplementedError(op)
