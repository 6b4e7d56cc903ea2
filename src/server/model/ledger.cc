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
  if (!terms.limit || *terms.limit <= (swap_ > 0 ? account.Promise() : account.Claim())) return {};
  // Memory that others hold without a promise goes to host memory where there is swap.
  const std::uint64_t others = swap_ > 0 ? promised_ - account.Promise() : claimed_ - account.Claim();
  const std::uint64_t left = Less(capacity_ - reserve_, others);
  if (*terms.limit <= left) return {};
  const auto holders = std::count_if(accounts_.begin(), accounts_.end(), [&](const auto& entry) {
    return entry.second.terms.limit && &entry.second != &account;
  });
  std::uint64_t unpromised = 0;
  for (const auto& [id, other] : accounts_) unpromised += &other != &account ? other.Claim() - other.Promise() : 0;
  std::string why = fmt::format("cannot promise {}: GPU {} has {} left of {} ({} vGPU{} promises",  //
                                FormatSize(*terms.limit), gpu_, FormatSize(left), FormatSize(capacity_), holders,
                                holders == 1 ? " holds" : "s hold");
  if (unpromised > 0) why += fmt::format(", {} in use beyond promises", FormatSize(unpromised));
  if (reserve_ > 0) why += fmt::format(", {} kept back", FormatSize(reserve_));
  return Fail(ENOSPC, why + ")",
              left > 0 ? fmt::format("ask for at most {}, or lower another vGPU's limit", FormatSize(left))
                       : "lower another vGPU's limit, or leave the limit out to use what others leave");
}

Result<void> Ledger::Set(VgpuId id, const MemoryTerms& terms) {
  const Account none;
  const auto found = accounts_.find(id);
  if (auto admitted = Admit(found == accounts_.end() ? none : found->second, terms); !admitted) return admitted;
  Account& account = accounts_[id];
  promised_ -= account.Promise();
  claimed_ -= account.Claim();
  account.terms = terms;
  promised_ += account.Promise();
  claimed_ += account.Claim();
  return {};
}

void Ledger::Close(VgpuId id) {
  Account& account = accounts_.at(id);
  promised_ -= account.Promise();
  claimed_ -= account.Claim();
  held_ -= account.held;
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

std::uint64_t Ledger::Max(VgpuId id) const {
  const MemoryTerms& terms = accounts_.at(id).terms;
  const std::uint64_t on_gpu = terms.limit.value_or(Less(capacity_ - reserve_, promised_));
  const std::uint64_t max = terms.max.value_or(on_gpu);
  const std::uint64_t swap = std::min(swap_, terms.swap.value_or(swap_));
  return max <= on_gpu ? max : on_gpu + std::min(max - on_gpu, swap);
}

std::uint64_t Ledger::Held(VgpuId id) const { return accounts_.at(id).held; }

std::uint64_t Ledger::Available(VgpuId id) const {
  const Account& account = accounts_.at(id);
  const std::uint64_t own = Less(Max(id), account.held);
  return std::min(own, Less(account.Promise(), account.held) + Unclaimed());
}

std::uint64_t Ledger::Unclaimed() const { return Less(capacity_ - reserve_ + swap_of_all_, claimed_); }

}  // namespace tessera::server
