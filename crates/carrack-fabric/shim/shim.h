/* What src/ffi.rs declares too: flat calls over libfabric, so that no layout of its structures is known to Rust.
 *
 * All calls return 0 or a negative error number: -FI_E... of rdma/fi_errno.h. Memory given to a posted operation (its
 * buffer and its context) has to stay where it is until the operation's completion was polled or the endpoint closed.
 */
#ifndef CARRACK_FABRIC_SHIM_H
#define CARRACK_FABRIC_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* One entry of fi_getinfo(3), as far as we look at it. Strings end in NUL and are cut to fit. */
struct cf_offer {
    char provider[64];
    char fabric[128];
    char domain[64];
    char nic[64];
    uint64_t caps;
    uint64_t mr_mode;
    uint64_t inject_bytes;
    uint64_t max_message_bytes;
    uint64_t cq_data_bytes;
    uint64_t send_operations;
    uint64_t receive_operations;
    uint64_t key_bytes;
    uint32_t address_format;
    uint32_t is_reliable_datagram;
    uint32_t progresses_by_itself;
    uint32_t has_pci;
    uint32_t pci[4]; /* domain, bus, device, function */
};

/* A completion. */
struct cf_completion {
    void *context; /* that of the operation; not ours where `flags` say that the peer wrote */
    uint64_t flags;
    uint64_t len;
    uint64_t data;
    int32_t status; /* 0, or FI_E... (positive) */
    int32_t provider_status;
    char words[128]; /* the provider's, where status is not 0 */
};

struct cf_endpoint; /* fabric, domain, endpoint, completion queue, address vector */
struct cf_region;   /* registered memory */

/* One post: bytes of registered memory, and for RMA the place at the peer. */
struct cf_post {
    void *buffer;
    uint64_t len;
    struct cf_region *region; /* that `buffer` lies in */
    uint64_t peer;
    uint64_t address;
    uint64_t key;
    uint64_t data;     /* for the peer's completion queue, if has_data */
    uint32_t has_data;
    void *context; /* of CF_CONTEXT_BYTES, the provider's until the completion */
};

#define CF_CONTEXT_BYTES 64

/* Finds libfabric.so.1 by the dynamic linker's ways; NULL, or why it is not there. Any number of threads and times. */
const char *cf_load(void);
uint32_t cf_version(void);
const char *cf_strerror(int code);

/* Entries that match: a provider's name or NULL, an address of this host to use or NULL; with is_usable only those
 * that cf_open takes. */
int cf_list(const char *provider, const char *source, int is_usable, void **head);
void *cf_next(void *info);
void cf_describe(void *info, struct cf_offer *offer);
void *cf_duplicate(void *info);
void cf_free(void *info);

/* `what` becomes the call that failed. */
int cf_open(void *info, uint64_t completions, struct cf_endpoint **out, const char **what);
/* Ends all operations; the rest stays until cf_close. Again after success: nothing. */
int cf_close_endpoint(struct cf_endpoint *self);
/* All that is open; what can't be closed leaks. After every cf_deregister. */
int cf_close(struct cf_endpoint *self, const char **what);
int cf_name(struct cf_endpoint *self, uint8_t *name, size_t *len);
int cf_add_peer(struct cf_endpoint *self, const uint8_t *name, uint64_t *peer);

/* What memory is for; not more, as ofi_rxm lets peers read what may be sent, and write to what may be received into,
 * for its own transfer of long messages. */
enum { CF_MESSAGES, CF_OWN_RMA, CF_PEERS_READ, CF_PEERS_WRITE };

/* Asks for `key`; the provider may choose another. */
int cf_register(struct cf_endpoint *self, void *base, size_t len, uint32_t purpose, uint64_t key,
                struct cf_region **out, uint64_t *chosen_key);
int cf_deregister(struct cf_region *region);

int cf_send(struct cf_endpoint *self, const struct cf_post *post);
int cf_receive(struct cf_endpoint *self, const struct cf_post *post);
int cf_read(struct cf_endpoint *self, const struct cf_post *post);
int cf_write(struct cf_endpoint *self, const struct cf_post *post);

/* Up to `limit` completions, without waiting; their number or an error of the queue. A failed operation is a completion
 * too, and comes alone. */
int cf_poll(struct cf_endpoint *self, struct cf_completion *out, int limit);
/* Readable when there may be a completion, if cf_may_wait said so just before; -1: this provider has none. */
int cf_wait_fd(struct cf_endpoint *self);
int cf_may_wait(struct cf_endpoint *self);

/* Sizes and places that src/ffi.rs has to agree with; see its test. */
void cf_layout(size_t sizes[8]);

#endif
