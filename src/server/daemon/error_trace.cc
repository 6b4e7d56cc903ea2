#include "server/daemon/error_trace.h"

#include <string>
#include <utility>

#include "server/record/events.h"
#include "server/record/log.h"
#include "server/record/trace.h"

namespace tessera::server {

void ErrorTrace::SaveIfWrong(Nanos now) {
  constexpr Nanos kSeldom = 60 * kSecond;  // where one error follows the other, the first one tells most
  const std::uint64_t errors = events::Errors();
  if (errors == errors_seen_ || saving_.Busy() || (saved_at_ != 0 && now - saved_at_ < kSeldom)) return;
  errors_seen_ = errors;
  saved_at_ = now;
  std::string bytes = trace::Bytes();
  if (bytes.empty()) return;
  saving_.Start(
      [this, bytes = std::move(bytes)] {
        if (auto saved = trace::SaveLast(run_dir_, bytes); !saved) log::Warn("{}", saved.error().Text());
      },
      [] {});
}

}  // namespace tessera::server
