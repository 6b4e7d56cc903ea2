#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"

namespace tessera::face {

// Answers that are the same for all clients of a user, and for all operators: made once in a while, however many ask.
// Any thread.
class SharedAnswers {
 public:
  using Text = std::shared_ptr<const std::string>;
  using Make = std::function<Result<std::string>()>;

  // An answer is given again for so many nanoseconds after it was made.
  explicit SharedAnswers(Nanos lasts) : lasts_(lasts) {}

  // The answer for a user (none: operators), made by `make` if there is none that still lasts. Who asks while it is
  // being made waits for it. Errors are those of `make`, and are not kept.
  Result<Text> Get(std::optional<uid_t> user, const Make& make);

  // Something changed: no answer that was begun before this is given to who asks after it.
  void Forget();

 private:
  struct Answer {
    Mutex making;
    Text text TESSERA_GUARDED_BY(making);
    Nanos until TESSERA_GUARDED_BY(making) = 0;
    std::uint64_t change TESSERA_GUARDED_BY(making) = 0;  // changes_ when it was begun
  };
  static constexpr std::size_t kMostUsers = 32;  // whose answers are kept

  // And the changes so far.
  std::pair<std::shared_ptr<Answer>, std::uint64_t> Find(std::optional<uid_t> user);

  const Nanos lasts_;
  Mutex mutex_;
  std::map<std::optional<uid_t>, std::shared_ptr<Answer>> answers_ TESSERA_GUARDED_BY(mutex_);
  std::uint64_t changes_ TESSERA_GUARDED_BY(mutex_) = 0;
};

}  // namespace tessera::face
