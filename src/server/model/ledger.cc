#include "server/model/ledger.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/size.h"
#include "sched/residency/bytes.h"

namespace tessera::server {

using sched::Less;
Ledger::Ledger(std::uint32_t gpu, std::uint64_t capacity, std::uint64_t reserve, std::uint64_t swap,
               std::optional<std::uint64_t> swap_of_all)
    : gpu_(gpu),
      capacity_(capacity),
      reserve_(std::min(reserve, capacity)),
      swap_(swap),
      swap_of_all_(swap_of_all.value_or(swap)) {}

Result<void> Ledger::Admit(const Account& account, const MemoryTerms& terms) const {
  if (terms.request <= account.terms.request) return {};
  const std::uint64_t whole = capacity_ - reserve_;
  const std::uint64_t unpromised = Less(whole, promised_ - account.terms.request);
  // What others hold has to lie somewhere else then: in host memory, if there is some.
  const std::uint64_t left = std::min(unpromised, Less(PlaceForAll(), claimed_ - account.Claim()));
  if (terms.request <= left) return {};
  const auto holders = std::count_if(accounts_.begin(), accounts_.end(), [&](const auto& entry) {
    return entry.second.terms.request > 0 && &entry.second != &account;
  });
  std::uint64_t beyond = 0;
  for (const auto& [id, other] : accounts_) beyond += &other != &account ? other.Claim() - other.terms.request : 0;
  std::string why = fmt::format("cannot promise {}: GPU {} has {} left of {} ({} vGPU{} promises",  //
                                FormatSize(terms.request), gpu_, FormatSize(left), FormatSize(capacity_), holders,
                                holders == 1 ? " holds" : "s hold");
  if (left < unpromised) why += fmt::format(", {} in use beyond promises", FormatSize(beyond));
  if (reserve_ > 0) why += fmt::format(", {} kept back", FormatSize(reserve_));
  return Fail(ENOSPC, why + ")",
              left > 0 ? fmt::format("request at most {}, or lower another vGPU's memory.request", FormatSize(left))
                       : "lower another vGPU's memory.request, or leave it out to use what others leave");
}

Result<void> Ledger::Set(VgpuId id, const MemoryTerms& terms) {
  const Account none;
  const auto found = accounts_.find(id);
  if (auto admitted = Admit(found == accounts_.end() ? none : found->second, terms); !admitted) return admitted;
  Account& account = accounts_[id];
  promised_ -= account.terms.request;
  claimed_ -= account.Claim();
  account.terms = terms;
  promised_ += account.terms.request;
  claimed_ += account.Claim();
  return {};
}

void Ledger::Close(VgpuId id) {
  Account& account = accounts_.at(id);
  promised_ -= account.terms.request;
  claimed_ -= account.Claim();
  held_ -= account.held;
  blank_ -= account.blank;
  accounts_.erase(id);
}

void Ledger::SetHeld(Account& account, std::uint64_t held) {
  held_ += held - account.held;
  claimed_ -= account.Claim();
  account.held = held;
  claimed_ += account.Claim();
}

bool Ledger::Charge(VgpuId id, std::uint64_t bytes) {
  if (bytes > Available(id)) return false;
  ChargeAnyway(id, bytes);
  return true;
}

void Ledger::ChargeAnyway(VgpuId id, std::uint64_t bytes) {
  Account& account = accounts_.at(id);
  SetHeld(account, account.held + bytes);
}

void Ledger::GiveBack(VgpuId id, std::uint64_t bytes) {
  Account& account = accounts_.at(id);
  SetHeld(account, Less(account.held, bytes));
}

void Ledger::SetBlank(VgpuId id, std::uint64_t bytes) {
  Account& account = accounts_.at(id);
  bytes = sched::BlankWithin(account.terms.swap.value_or(UINT64_MAX), bytes);
  blank_ += bytes - account.blank;
  account.blank = bytes;
}

// What the GPU has for a vGPU. Without swap what others were promised is never lent.
std::uint64_t Ledger::OnGpu(const Account& account) const {
  return Less(capacity_ - reserve_, swap_ > 0 ? 0 : promised_ - account.terms.request);
}

// What a vGPU may have within its limit and in host memory.
std::uint64_t Ledger::PlaceFor(const Account& account) const {
  const std::uint64_t whole = OnGpu(account);
  return std::min(account.terms.limit.value_or(whole), whole) + sched::HeldBySlots(swap_, account.blank);
}

std::uint64_t Ledger::PlaceForAll() const { return capacity_ - reserve_ + sched::HeldBySlots(swap_of_all_, blank_); }

bool Ledger::HasPlace(VgpuId id) const {
  const Account& account = accounts_.at(id);
  return claimed_ <= PlaceForAll() && account.held <= PlaceFor(account);
}

std::uint64_t Ledger::Max(VgpuId id) const {
  const MemoryTerms& terms = accounts_.at(id).terms;
  const std::uint64_t whole = OnGpu(accounts_.at(id));
  const std::uint64_t on_gpu = std::min(terms.limit.value_or(whole), whole);
  const std::uint64_t max = terms.max.value_or(whole);
  const std::uint64_t swap = std::min(swap_, terms.swap.value_or(swap_));
  return max <= on_gpu ? max : on_gpu + std::min(max - on_gpu, swap);
}

std::uint64_t Ledger::Held(VgpuId id) const { return accounts_.at(id).held; }

std::uint64_t Ledger::Available(VgpuId id) const {
  const Account& account = accounts_.at(id);
  const std::uint64_t own = Less(std::min(Max(id), PlaceFor(account)), account.held);
  return std::min(own, Less(account.terms.request, account.held) + Unclaimed());
}

std::int64_t Ledger::Spare() const {
  auto spare = static_cast<std::int64_t>(capacity_ - reserve_);
  for (const auto& [_, account] : accounts_)
    spare -= static_cast<std::int64_t>(std::min(std::max(account.Claim(), account.terms.limit.value_or(0)), capacity_));
  return spare;
}

std::uint64_t Ledger::Unclaimed() const { return Less(PlaceForAll(), claimed_); }

}  // namespace tessera::server
