#include "face/http/shared_answers.h"

namespace tessera::face {

Result<SharedAnswers::Text> SharedAnswers::Get(std::optional<uid_t> user, const Make& make) {
  const auto [answer, change] = Find(user);
  const MutexLock lock(answer->making);
  if (answer->text && answer->change >= change && MonotonicNow() < answer->until) return answer->text;
  auto made = make();
  if (!made) return std::unexpected(made.error());
  answer->text = std::make_shared<const std::string>(std::move(*made));
  answer->until = MonotonicNow() + lasts_;
  answer->change = change;
  return answer->text;
}

void SharedAnswers::Forget() {
  const MutexLock lock(mutex_);
  ++changes_;
}

std::pair<std::shared_ptr<SharedAnswers::Answer>, std::uint64_t> SharedAnswers::Find(std::optional<uid_t> user) {
  const MutexLock lock(mutex_);
  if (answers_.size() >= kMostUsers && !answers_.contains(user)) answers_.clear();
  auto& answer = answers_[user];
  if (!answer) answer = std::make_shared<Answer>();
  return {answer, changes_};
}

}  // namespace tessera::face
