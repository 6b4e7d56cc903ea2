#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "channel/control/control.h"
#include "channel/rm/object_event.h"
#include "channel/rm/object_table.h"

namespace tessera::channel {

// The RM objects of one process as several sources tell of them, and whether they may be believed. The kernel gate and
// the watch see what the process does; its shim runs inside it, so that what comes from there is a claim. A claim is
// believed if the process's own file answers for the client, which then owns all that is claimed under it.
class ProcessObjects {
 public:
  enum class Source { kShim, kGuard, kWatch };

  // Whether the groups may be others now. Once the kernel gate has told of the process, nobody else is asked.
  bool Apply(const ObjectEvent& event, Source source);
  // Events that an earlier daemon believed. Of what the process told since then they prove nothing.
  void Restore(const std::vector<ObjectEvent>& events);

  // Whether the objects are the process's own, as far as that can be found out. Asks the driver about claims; the
  // answer holds until there are new ones. Where files cannot be borrowed, the daemon serves only its own user, and
  // claims are believed.
  bool Verify(Control& control, pid_t pid, int process_fd);

  // The channels of the process on a GPU of this control.
  Target TargetOn(const Control& control, std::uint32_t gpu, pid_t pid, int process_fd) const;

  // A claim proved wrong; nothing is known of the process from then on but what the kernel gate tells.
  bool Refused() const { return refused_; }

  const ObjectTable& Table() const { return table_; }

 private:
  ObjectTable table_;
  bool guarded_ = false;          // the kernel gate tells all of it
  bool claimed_ = false;          // its shim told something
  bool verified_ = false;         // only trusted sources told of it, or the claims proved true
  bool refused_ = false;          // a claim was wrong
  std::size_t false_claims_ = 0;  // of objects that nobody has
};

}  // namespace tessera::channel
