#include "server/model/move_account.h"

#include <algorithm>
#include <utility>

#include "sched/residency/bytes.h"

namespace tessera::server {

using sched::Less;
using sched::Moving;

Moves& Moves::operator+=(const Moves& other) {
  out += other.out;
  in += other.in;
  time += other.time;
  return *this;
}

void MoveAccount::Order(Moving moving, std::uint64_t bytes, Nanos now, std::uint64_t holes) {
  if (doing_ == Moving::kNothing) ordered_at_ = now;
  doing_ = moving;
  ordered_ += bytes;
  ordered_holes_ += holes;
}

Moves MoveAccount::NoteMoved(const Moves& of_room, const Moves& copied) {
  const auto add = [](Moves& known, const Moves& now) {
    const Moves more = {.out = Less(now.out, known.out), .in = Less(now.in, known.in)};
    known += more;
    return more;
  };
  const Moves contents = add(mover_copied_, copied), moved = add(mover_room_, of_room);
  copied_ += contents;
  ordered_holes_ = Less(ordered_holes_, Less(moved.in, contents.in));
  out_ += moved.out;
  in_ += moved.in;
  ordered_ = Less(ordered_, moved.out + moved.in);
  return moved;
}

bool MoveAccount::NoteEnd(std::uint64_t bytes, Nanos now) {
  ordered_ = Less(ordered_, bytes);
  if (ordered_ > 0) return false;
  if (doing_ != Moving::kNothing) time_ += now - ordered_at_;
  doing_ = Moving::kNothing;
  ordered_holes_ = 0;
  return true;
}

void MoveAccount::LoseSight(std::uint64_t bytes) { (doing_ == Moving::kIn ? lost_in_ : lost_out_) += bytes; }

void MoveAccount::Abandon() {
  if (doing_ == Moving::kIn) lost_in_ += ordered_;
  if (doing_ == Moving::kOut) lost_out_ += ordered_;
  doing_ = Moving::kNothing;
  ordered_ = ordered_holes_ = 0;
}

Moves MoveAccount::FindLost(const wire::Page& page) {
  const Moves found = {.out = std::min(std::exchange(lost_out_, 0), Less(page.moved_out.load(), out_)),
                       .in = std::min(std::exchange(lost_in_, 0), Less(page.moved_in.load(), in_))};
  out_ += found.out;
  in_ += found.in;
  copied_.out += found.out;
  mover_room_ = mover_copied_ = {};
  return found;
}

std::uint64_t MoveAccount::Unreported(const wire::Page& page) const {
  switch (doing_) {
    case Moving::kOut:
      return std::min(ordered_, Less(page.moved_out.load(std::memory_order_relaxed), out_));
    case Moving::kIn:
      return std::min(ordered_, Less(page.moved_in.load(std::memory_order_acquire), in_));
    default:
      return 0;
  }
}

std::uint64_t MoveAccount::Swapped(const wire::Page& page) const {
  const std::uint64_t most = brought_ + copied_.out + lost_out_ + (doing_ == Moving::kOut ? ordered_ : 0);
  return std::min(page.swapped.load(std::memory_order_acquire), Less(most, copied_.in));
}

Moves MoveAccount::SumAt(Nanos now) const {
  const Nanos under_way = doing_ == Moving::kNothing ? 0 : now - ordered_at_;
  return {.out = out_, .in = in_, .time = time_ + under_way};
}

std::uint64_t MoveAccount::TakeUntraced(Moving moving) {
  if (moving == Moving::kOut) return out_ - std::exchange(traced_out_, out_);
  return in_ - std::exchange(traced_in_, in_);
}

}  // namespace tessera::server
