#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "wire/page.h"
#include "wire/protocol.h"

namespace tessera::server {

// A program's side of docs/protocol.md, step by step. Each method that expects an answer fails the test that runs when
// another one comes, and returns what it got.
class FakeClient {
 public:
  explicit FakeClient(const std::string& run_dir);
  explicit FakeClient(UniqueFd socket) : socket_(std::move(socket)) {}
  FakeClient(FakeClient&& other) noexcept;
  ~FakeClient();

  template <typename Body>
  bool Send(const Body& body, std::uint32_t gpu = 0) {
    return SendBytes(wire::BytesOf(wire::Make(body, gpu)));
  }
  bool SendBytes(std::span<const std::byte> bytes);

  wire::Welcome Hello(const std::string& vgpus, bool observer = false);
  wire::Refused HelloRefused(const std::string& vgpus);
  wire::Attached Attach(const wire::Uuid& gpu, std::uint64_t holds_bytes = 0, std::uint32_t holds_contexts = 0,
                        bool works = false);
  wire::Attached Attach(const wire::Attach& request);
  wire::Refused AttachRefused(const wire::Uuid& gpu);
  wire::Reserved Reserve(std::uint64_t bytes, std::uint32_t gpu = 0);
  wire::Reserved MakeContext(std::uint32_t gpu = 0);
  wire::RoomGranted AskForRoom(std::uint64_t bytes, std::uint32_t gpu = 0);
  void Export(const wire::Export& part, std::span<const int> fds, std::uint32_t gpu = 0);
  wire::Refused ExportRefused(const wire::Export& part, std::span<const int> fds = {}, std::uint32_t gpu = 0);
  void Unexport(const wire::ExportKey& key, std::uint32_t gpu = 0);
  wire::Imported Import(const wire::Import& import, std::vector<UniqueFd>* fds, std::uint32_t gpu = 0);
  wire::Refused ImportRefused(const wire::Import& import, std::uint32_t gpu = 0);
  wire::View Query(const wire::Uuid& gpu);  // its answer also says that everything sent before was acted on

  // Waits for a refusal; the connection is expected to end after it.
  wire::Refused ReadRefused();
  // Waits until the daemon closes the connection.
  bool ReadsEnd();

  // Waits for an order after `epoch`; false after ten seconds.
  bool WaitForOrder(std::uint32_t epoch) const;
  // Wants, and waits for the open gate.
  bool TakeToken();

  wire::Page& Page() const { return *page_; }
  std::uint32_t Epoch() const { return page_->epoch.load(); }
  int Socket() const { return socket_.Get(); }
  void Disconnect() { socket_.Reset(); }

 private:
  template <typename Body>
  Body Read(UniqueFd* fd = nullptr);
  template <typename Body>
  Body Read(std::span<UniqueFd> fds, std::size_t& received);

  UniqueFd socket_;
  wire::Page* page_ = nullptr;
};

}  // namespace tessera::server
