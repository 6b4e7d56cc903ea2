#include "face/files/file_service.h"

#include <fcntl.h>
#include <unistd.h>

#define FUSE_USE_VERSION 314
#include <fuse.h>

#include "server/record/log.h"

namespace tessera::face {
namespace {

// Each of these serves one kind of request. They return 0 or more, or a negative errno value.

FileService& Service() { return *static_cast<FileService*>(fuse_get_context()->private_data); }

// The tree for the process that asks, which waits for the answer.
FileTree Tree() {
  const FileTree& tree = Service().tree;
  const fuse_context& context = *fuse_get_context();
  const bool needs_groups = context.uid != 0 && context.uid != geteuid();
  return tree.For(tree.Asker().For(
      context.uid, needs_groups ? server::GroupsOfThread(context.pid, context.uid) : std::vector<gid_t>()));
}

// ENOSYS would tell the kernel that there is no such request, for good.
int Negative(const Error& error) { return error.code == ENOSYS ? -EOPNOTSUPP : -error.code; }

int Refused(const char* what, const char* path, const Error& error) {
  server::log::Debug("{} {} is refused: {}", what, path, error.Text());
  return Negative(error);
}

void* OnBegin(fuse_conn_info*, fuse_config* config) {
  // Contents change at any time, and a size is known only with the text.
  config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
  config->direct_io = 1;
  return fuse_get_context()->private_data;
}

mode_t ModeOf(const FileTree::Attributes& attributes, const FileAccess& access) {
  using enum FileTree::Attributes::Others;
  const mode_t owner = attributes.mode & 0700;
  const mode_t others = attributes.others == kAll ? owner : attributes.others == kRead ? owner & 0500 : 0;
  return (attributes.mode & S_IFMT) | owner | (access.group ? owner >> 3 : 0) | (access.others ? others >> 6 : 0);
}

int OnGetAttributes(const char* path, struct stat* st, fuse_file_info*) {
  const FileService& service = Service();
  const auto attributes = Tree().Look(path);
  if (!attributes) return Negative(attributes.error());
  *st = {};
  st->st_mode = ModeOf(*attributes, service.access);
  st->st_nlink = S_ISDIR(attributes->mode) ? 2 : 1;
  st->st_uid = attributes->uid;
  st->st_gid = service.access.gid;
  st->st_atime = st->st_mtime = st->st_ctime = service.started;
  return 0;
}

int OnReadDirectory(const char* path, void* buffer, fuse_fill_dir_t fill, off_t, fuse_file_info*, fuse_readdir_flags) {
  const auto names = Tree().List(path);
  if (!names) return Negative(names.error());
  constexpr auto kNothingElse = static_cast<fuse_fill_dir_flags>(0);
  for (const char* name : {".", ".."}) fill(buffer, name, nullptr, 0, kNothingElse);
  for (const std::string& name : *names) fill(buffer, name.c_str(), nullptr, 0, kNothingElse);
  return 0;
}

int OnMakeDirectory(const char* path, mode_t) {
  const auto made = Tree().MakeDirectory(path);
  return made ? 0 : Refused("mkdir", path, made.error());
}

int OnRemoveDirectory(const char* path) {
  const auto removed = Tree().RemoveDirectory(path);
  return removed ? 0 : Refused("rmdir", path, removed.error());
}

bool MayBeWritten(const FileTree::Attributes& attributes) { return (attributes.mode & 0200) != 0; }

// For root the kernel does not check modes, so this does.
int OnOpen(const char* path, fuse_file_info* file) {
  FileTree tree = Tree();
  const auto attributes = tree.Look(path);
  if (!attributes) return Negative(attributes.error());
  if ((file->flags & O_ACCMODE) != O_RDONLY && !MayBeWritten(*attributes)) return -EACCES;
  file->fh = Service().files.Open(std::move(tree), path, attributes->tells);
  return 0;
}

int OnRelease(const char*, fuse_file_info* file) {
  Service().files.Close(file->fh);
  return 0;
}

int OnRead(const char*, char* buffer, std::size_t size, off_t offset, fuse_file_info* file) {
  const auto open = Service().files.Find(file->fh);
  if (!open) return -EBADF;
  const auto text = open->Read(size, static_cast<std::uint64_t>(offset));
  if (!text) return Negative(text.error());
  text->copy(buffer, size);
  return static_cast<int>(text->size());
}

// Each write is one value, wherever the file's position is.
int OnWrite(const char* path, const char* text, std::size_t size, off_t, fuse_file_info* file) {
  const auto open = Service().files.Find(file->fh);
  if (!open) return -EBADF;
  const auto written = open->Write({text, size});
  return written ? static_cast<int>(size) : Refused("a write to", path, written.error());
}

// Shells cut a file before they write to it.
int OnTruncate(const char* path, off_t, fuse_file_info*) {
  const auto attributes = Tree().Look(path);
  if (!attributes) return Negative(attributes.error());
  return MayBeWritten(*attributes) ? 0 : -EACCES;
}

int OnPoll(const char*, fuse_file_info* file, fuse_pollhandle* waiter, unsigned* events) {
  *events = Service().files.Poll(file->fh, waiter);
  return 0;
}

int OnSetTimes(const char*, const timespec*, fuse_file_info*) { return 0; }

// Operations that are not supported, with the errors that a control group has for them.
int OnCreate(const char*, mode_t, fuse_file_info*) { return -EACCES; }
int OnMakeNode(const char*, mode_t, dev_t) { return -EACCES; }
int OnUnlink(const char*) { return -EPERM; }
int OnLinkTo(const char*, const char*) { return -EPERM; }
int OnRename(const char*, const char*, unsigned) { return -EPERM; }
int OnChangeMode(const char*, mode_t, fuse_file_info*) { return -EPERM; }
int OnChangeOwner(const char*, uid_t, gid_t, fuse_file_info*) { return -EPERM; }

}  // namespace

FileAccess FileAccess::Of(const std::string& socket) {
  struct stat st;
  if (stat(socket.c_str(), &st) != 0) return {.gid = getegid()};
  constexpr mode_t kGroup = S_IRGRP | S_IWGRP, kOthers = S_IROTH | S_IWOTH;
  return {.gid = st.st_gid, .group = (st.st_mode & kGroup) == kGroup, .others = (st.st_mode & kOthers) == kOthers};
}

const fuse_operations& FileOperations() {
  static const fuse_operations operations = {
      .getattr = OnGetAttributes,
      .mknod = OnMakeNode,
      .mkdir = OnMakeDirectory,
      .unlink = OnUnlink,
      .rmdir = OnRemoveDirectory,
      .symlink = OnLinkTo,
      .rename = OnRename,
      .link = OnLinkTo,
      .chmod = OnChangeMode,
      .chown = OnChangeOwner,
      .truncate = OnTruncate,
      .open = OnOpen,
      .read = OnRead,
      .write = OnWrite,
      .release = OnRelease,
      .readdir = OnReadDirectory,
      .init = OnBegin,
      .create = OnCreate,
      .utimens = OnSetTimes,
      .poll = OnPoll,
  };
  return operations;
}

}  // namespace tessera::face
