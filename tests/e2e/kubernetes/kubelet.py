"""A kubelet as far as a DRA driver sees it: it finds the driver's sockets, registers it, and has it prepare claims.

Order and errors are the real one's (1.36: pkg/kubelet/pluginmanager, pkg/kubelet/cm/dra). Unlike it, this one connects to
the endpoint at the first call, and deletes no ResourceSlices.
"""
import collections
import os
import pathlib
import re
import select
import stat
import threading
import time

from folder_events import FolderEvents
from messages import DRA, HEALTH, REGISTRATION, call, dialled, dra, dra_health, grpc, registration, stream
from names import is_subdomain

REAL_TIMEOUT_S = 45
DEADLINE_S = 60
VERSION = "v1.DRAPlugin"
LONGEST_SOCKET = 107  # bytes of a path in sockaddr_un
CDI_DEVICE = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?="
                        r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
FIRST_RETRY_S, LAST_RETRY_S = 0.05, 1

Plugin = collections.namedtuple("Plugin", "name endpoint versions socket channel")


class KubeletError(Exception):
    """Why a pod would not start, or not end, as the kubelet would say it."""


def problem_of(info):
    """Why the kubelet refuses a plugin that tells this of itself."""
    if info.type != "DRAPlugin":
        return f"no handler registered for plugin type: {info.type!r}, which must be DRAPlugin"
    if not is_subdomain(info.name, 63):
        return f"{info.name!r} is no name of a driver, which is a DNS name of at most 63 characters"
    if VERSION not in info.supported_versions:
        return f"none of its versions {list(info.supported_versions)} is {VERSION}"
    if not info.endpoint.startswith("/") or len(os.fsencode(info.endpoint)) > LONGEST_SOCKET:
        return f"the endpoint {info.endpoint!r} is no absolute path of at most {LONGEST_SOCKET} bytes"
    return None


class Kubelet:
    """root_dir has plugins_registry/ and plugins/ from the beginning; start() begins to look for drivers."""

    def __init__(self, root_dir, timeout_s=10):
        self.registry, self.plugins_dir = pathlib.Path(root_dir, "plugins_registry"), pathlib.Path(root_dir, "plugins")
        self.timeout_s = timeout_s
        for folder in (self.registry, self.plugins_dir):
            folder.mkdir(parents=True, exist_ok=True)
        self.changed = threading.Condition()  # guards all below
        self.plugins = []                     # that are registered, the newest last
        self.registrations = collections.Counter()  # that there ever were, by driver
        self.failures = []                    # of registrations, as text
        self.asking = None                    # the channel of the registration under way
        self.thread = self.wake = None

    def start(self):
        self.wake = os.pipe()
        # In this thread, so that no socket is missed that appears after this call.
        self.thread = threading.Thread(target=self._run, args=(FolderEvents(self.registry), self.wake[0]), name="kubelet")
        self.thread.start()
        return self

    def stop(self):
        """All connections end. The sockets of drivers stay."""
        if self.thread is None:
            return
        with self.changed:
            wake, self.wake = self.wake, None
            os.close(wake[1])
            if self.asking:
                self.asking.close()
        self.thread.join()
        os.close(wake[0])
        self.thread = None
        with self.changed:
            while self.plugins:
                self.plugins.pop().channel.close()
            self.changed.notify_all()

    def restart(self):
        """As the real one, it forgets who was registered and asks at the sockets that it finds."""
        self.stop()
        self.start()

    # ---- registration ----

    def registered(self, driver=None):
        """The plugin of this driver (or of the only one); None without one."""
        with self.changed:
            found = [plugin for plugin in self.plugins if driver in (None, plugin.name)]
        if driver is None and len({plugin.name for plugin in found}) > 1:
            raise KubeletError(f"which of {sorted({plugin.name for plugin in found})}?")
        return found[-1] if found else None

    def wait_registered(self, driver, times=1, deadline_s=DEADLINE_S):
        """The plugin, once it is registered and was for so many times in all."""
        return self._wait(f"{driver} to be registered (time {times})",
                          lambda: self.registrations[driver] >= times and self.registered(driver), deadline_s)

    def wait_gone(self, driver, deadline_s=DEADLINE_S):
        self._wait(f"{driver} not to be registered", lambda: not self.registered(driver), deadline_s)

    def wait_failure(self, text="", deadline_s=DEADLINE_S):
        """What a registration has failed by, which has this text in it."""
        return self._wait(f"a registration to fail: {text}", lambda: next((f for f in self.failures if text in f), None),
                          deadline_s)

    def _wait(self, what, condition, deadline_s):
        with self.changed:
            value = self.changed.wait_for(condition, deadline_s)
            if not value:
                raise AssertionError(f"waited {deadline_s} s for {what}; {self.registry} has {os.listdir(self.registry)}; "
                                     f"registrations failed: {self.failures[-5:]}")
        return value

    def _run(self, events, wake):
        """The thread that registers. A socket may be there before its server listens: that one is tried again."""
        found = [self.registry / name for name in sorted(os.listdir(self.registry)) if self._is_plugin(name)]
        due = {socket: (0, FIRST_RETRY_S) for socket in found}
        while True:
            now = time.monotonic()
            soonest = max(0, min(when for when, _ in due.values()) - now) if due else None
            if wake in select.select([events, wake], [], [], soonest)[0]:
                break
            for name, appeared in events.read():
                self._forget(self.registry / name)
                due.pop(self.registry / name, None)
                if appeared and self._is_plugin(name):
                    due[self.registry / name] = (0, FIRST_RETRY_S)
            for socket, (when, delay) in list(due.items()):
                if when <= time.monotonic():
                    del due[socket]
                    if not self._register(socket):
                        due[socket] = (time.monotonic() + delay, min(2 * delay, LAST_RETRY_S))
        events.close()

    def _is_plugin(self, name):
        try:
            return name.endswith("-reg.sock") and name[0] != "." and stat.S_ISSOCK((self.registry / name).stat().st_mode)
        except FileNotFoundError:
            return False

    def _forget(self, socket):
        with self.changed:
            for plugin in [each for each in self.plugins if each.socket == socket]:
                self.plugins.remove(plugin)
                plugin.channel.close()
            self.changed.notify_all()

    def _register(self, socket):
        """Whether there is nothing left to try."""
        with self.changed:
            if self.wake is None:
                return True
            self.asking = channel = dialled(socket)
        try:
            info = call(channel, f"/{REGISTRATION}/GetInfo", registration.InfoRequest(), self.timeout_s)
            problem = problem_of(info)
            if not problem:
                plugin = Plugin(info.name, info.endpoint, tuple(info.supported_versions), socket, dialled(info.endpoint))
                with self.changed:
                    self.plugins.append(plugin)
            call(channel, f"/{REGISTRATION}/NotifyRegistrationStatus",
                 registration.RegistrationStatus(plugin_registered=not problem, error=problem or ""), self.timeout_s)
        except grpc.RpcError as error:
            problem = f"{error.code().name}: {error.details()}"
        except ValueError:
            return True  # stop() has closed the channel
        finally:
            with self.changed:
                self.asking = None
            channel.close()
        if problem:
            self._forget(socket)
        with self.changed:
            if not problem:
                self.registrations[info.name] += 1
            elif self.wake is not None:
                self.failures.append(f"{socket.name}: {problem}")
            self.changed.notify_all()
        return not problem

    # ---- claims ----

    def prepare(self, claims, driver=None):
        """NodePrepareResourceResponse (devices, error) by UID. `claims`: ResourceClaims, or (namespace, uid, name)."""
        results = self._ask("NodePrepareResources", dra.NodePrepareResourcesRequest, claims, driver)
        for uid, result in results.items():
            for device in result.devices:
                for name in device.cdi_device_ids:
                    if not CDI_DEVICE.fullmatch(name):
                        raise KubeletError(f"NodePrepareResources: {name!r} of claim {uid} is no vendor/class=name of CDI")
        return results

    def unprepare(self, claims, driver=None):
        """NodeUnprepareResourceResponse (error) by UID."""
        return self._ask("NodeUnprepareResources", dra.NodeUnprepareResourcesRequest, claims, driver)

    def watch_health(self, driver=None):
        """What the driver tells of its devices, each time; cancel() ends it."""
        return stream(self.registered(driver).channel, f"/{HEALTH}/NodeWatchResources",
                      dra_health.NodeWatchResourcesRequest())

    def _ask(self, method, request, claims, driver):
        plugin = self.registered(driver)
        if plugin is None:
            raise KubeletError(f"DRA driver {driver or ''} is not registered")
        asked = [self._claim(each) for each in claims]
        try:
            response = call(plugin.channel, f"/{DRA}/{method}", request(claims=asked), self.timeout_s)
        except grpc.RpcError as error:
            raise KubeletError(f"{method}: {error.code().name}: {error.details()}") from error
        unknown = set(response.claims) - {claim.uid for claim in asked}
        if unknown:
            raise KubeletError(f"{method} returned result for unknown claim UID {', '.join(sorted(unknown))}")
        if len(response.claims) < len(asked):
            raise KubeletError(f"{method} skipped {len(asked) - len(response.claims)} ResourceClaims")
        return dict(response.claims)

    @staticmethod
    def _claim(claim):
        if isinstance(claim, dict):
            claim = [claim["metadata"][key] for key in ("namespace", "uid", "name")]
        return dra.Claim(namespace=claim[0], uid=claim[1], name=claim[2])
