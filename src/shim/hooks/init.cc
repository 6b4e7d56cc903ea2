// Start and end of a process's use of the GPU.
#include <stdlib.h>

#include "base/fork_mutex.h"
#include "shim/device/current.h"
#include "shim/load/unknown_functions.h"
#include "shim/memory/exports.h"
#include "shim/memory/imports.h"
#include "shim/order/legacy_order.h"
#include "shim/session/mps_client.h"
#include "shim/session/objects.h"

using namespace tessera;
using namespace tessera::cuda;
using namespace tessera::shim;

namespace tessera::shim {

void StopAtExit();

namespace {

void TellUnknown(const char* name) {
  if (!Session::Instance().Managed()) return;  // all are told when it is welcome
  wire::Unknown unknown;
  wire::SetText(unknown.function, name);
  Session::Instance().Tell(wire::Make(unknown));
}

void TellAll(Session& session) {
  TellObjects(session);
  EachUnknown([](const char* name) {
    wire::Unknown unknown;
    wire::SetText(unknown.function, name);
    Session::Instance().Tell(wire::Make(unknown));
  });
}

void StopAll() {
  Attachment::ForEach([](Attachment& attachment) { attachment.Stop(); });
}

void AfterForkInChild() {
  ForgetThreadGate();
  Session::Instance().AbandonAfterFork();
  AbandonExportsAfterFork();
  AbandonImportsAfterFork();
  LegacyOrder::AbandonAfterFork();
  Attachment::ForEach([](Attachment& attachment) { attachment.AbandonAfterFork(); });
}

}  // namespace

// Handlers run in reverse order: ours must come before the driver's own, which it registers whenever it likes. So this
// is called again after each context that is made; stopping twice is harmless.
void StopAtExit() { atexit(StopAll); }

}  // namespace tessera::shim

TESSERA_HOOK cuInit(unsigned flags) {
  if (!LoadReal()) return CUDA_ERROR_SHARED_OBJECT_INIT_FAILED;
  Session::Instance().OnWelcome(TellAll);
  OnUnknown(TellUnknown);
  if (const CUresult opened = Session::Instance().Open(); opened != CUDA_SUCCESS) return opened;
  const wire::Welcome& terms = Session::Instance().Terms();
  const CUresult result = terms.space[0] != 0 ? InitInSpace(terms, flags) : REAL(cuInit)(flags);
  static const bool registered = [] {
    StopAtExit();
    OnForkInChild(AfterForkInChild);
    return true;
  }();
  (void)registered;
  return result;
}
