#include "shim/gate/gate.h"

// Read by the trampolines.
extern "C" {
[[gnu::visibility("hidden")]]
__attribute__((tls_model("initial-exec"))) __thread tessera::shim::Gate* tessera_thread_gate;
}

namespace tessera::shim {

Gate* ThreadGate() { return tessera_thread_gate; }
void SetThreadGate(Gate* gate) { tessera_thread_gate = gate; }
void ForgetThreadGate() { tessera_thread_gate = nullptr; }

}  // namespace tessera::shim
