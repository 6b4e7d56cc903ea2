#include "shim/device/ties.h"

#include <atomic>

#include "shim/device/attachment.h"

namespace tessera::shim {
namespace {

std::atomic<std::uint32_t> ties{0};

}  // namespace

void NoteTie(wire::Tie tie) {
  const auto bit = static_cast<std::uint32_t>(tie);
  if (ties.fetch_or(bit) & bit) return;
  Attachment::ForEach([](const Attachment& attachment) { ReportTies(*attachment.Page()); });
}

void ReportTies(wire::Page& page) { page.ties.store(ties.load()); }

}  // namespace tessera::shim
