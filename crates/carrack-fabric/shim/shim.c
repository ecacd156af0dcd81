/* libfabric behind flat calls (shim.h). Of the library only the six functions of `library` are symbols; all the others
 * are inline in its headers and go through tables in the objects. Man pages: fi_getinfo(3), fi_endpoint(3), fi_cq(3),
 * fi_av(3), fi_mr(3), fi_rma(3), fi_msg(3). */
#include "shim.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

/* The oldest API that has all we use: fi_context2, FI_MR_* mode bits, the NIC's attributes. */
#define API FI_VERSION(1, 11)

_Static_assert(sizeof(struct fi_context2) <= CF_CONTEXT_BYTES, "an operation's context is too small");

struct cf_endpoint {
    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    int wait_fd;
};

struct cf_region {
    struct fid_mr *mr;
};

static struct {
    int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
    void (*freeinfo)(struct fi_info *);
    struct fi_info *(*dupinfo)(const struct fi_info *);
    int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
    const char *(*strerror)(int);
    uint32_t (*version)(void);
} library;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[256];

static void *symbol(void *handle, const char *name) {
    void *found = dlsym(handle, name);
    if (!found && !why_not[0])
        snprintf(why_not, sizeof why_not, "libfabric.so.1 has no %s", name);
    return found;
}

/* libpsm_infinipath and libpsm2, which Debian's libfabric brings along, take over the signals of the whole process as they
 * are loaded, write files into the working directory at a crash, and end the process at SIGTERM. Here they don't. */
static void *open_library(void) {
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGTERM};
    enum { COUNT = sizeof signals / sizeof *signals };
    struct sigaction ours[COUNT];
    int is_known[COUNT];
    for (int i = 0; i < COUNT; i++)
        is_known[i] = sigaction(signals[i], NULL, &ours[i]) == 0;
    void *handle = dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < COUNT; i++)
        if (is_known[i])
            sigaction(signals[i], &ours[i], NULL);
    return handle;
}

static void load(void) {
    void *handle = open_library();
    if (!handle) {
        const char *words = dlerror();
        snprintf(why_not, sizeof why_not, "%s", words ? words : "libfabric.so.1 can't be loaded");
        return;
    }
    *(void **)&library.getinfo = symbol(handle, "fi_getinfo");
    *(void **)&library.freeinfo = symbol(handle, "fi_freeinfo");
    *(void **)&library.dupinfo = symbol(handle, "fi_dupinfo");
    *(void **)&library.fabric = symbol(handle, "fi_fabric");
    *(void **)&library.strerror = symbol(handle, "fi_strerror");
    *(void **)&library.version = symbol(handle, "fi_version");
    if (!why_not[0] && FI_VERSION_LT(library.version(), API))
        snprintf(why_not, sizeof why_not, "libfabric %u.%u is older than 1.11", FI_MAJOR(library.version()),
                 FI_MINOR(library.version()));
}

const char *cf_load(void) {
    pthread_once(&once, load);
    return why_not[0] ? why_not : NULL;
}

uint32_t cf_version(void) { return library.version(); }

const char *cf_strerror(int code) { return library.strerror(code < 0 ? -code : code); }

/* ---- what there is ---- */

/* An empty struct fi_info with its attributes: what the header's inline fi_allocinfo asks of fi_dupinfo. */
static struct fi_info *hints_for(const char *provider, int is_usable) {
    struct fi_info *hints = library.dupinfo(NULL);
    if (!hints)
        return NULL;
    if (provider)
        hints->fabric_attr->prov_name = strdup(provider);
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    if (is_usable) {
        hints->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_SEND | FI_RECV;
        hints->ep_attr->type = FI_EP_RDM;
        hints->domain_attr->threading = FI_THREAD_SAFE;
        hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
        /* Messages arrive in the order in which they were sent. */
        hints->tx_attr->msg_order = FI_ORDER_SAS;
        hints->rx_attr->msg_order = FI_ORDER_SAS;
    }
    return hints;
}

int cf_list(const char *provider, const char *source, int is_usable, void **head) {
    struct fi_info *found = NULL, *hints = hints_for(provider, is_usable);
    if (!hints)
        return -FI_ENOMEM;
    int rc = library.getinfo(API, source, NULL, source ? FI_SOURCE : 0, hints, &found);
    library.freeinfo(hints);
    *head = rc ? NULL : found;
    return rc;
}

void *cf_next(void *info) { return ((struct fi_info *)info)->next; }
void *cf_duplicate(void *info) { return library.dupinfo(info); }
void cf_free(void *info) { library.freeinfo(info); }

static void copy(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from ? from : ""); }

static void describe_nic(const struct fid_nic *nic, struct cf_offer *offer) {
    if (nic && nic->device_attr)
        copy(offer->nic, sizeof offer->nic, nic->device_attr->name);
    if (nic && nic->bus_attr && nic->bus_attr->bus_type == FI_BUS_PCI) {
        const struct fi_pci_attr *pci = &nic->bus_attr->attr.pci;
        offer->has_pci = 1;
        offer->pci[0] = pci->domain_id;
        offer->pci[1] = pci->bus_id;
        offer->pci[2] = pci->device_id;
        offer->pci[3] = pci->function_id;
    }
}

void cf_describe(void *entry, struct cf_offer *offer) {
    const struct fi_info *info = entry;
    memset(offer, 0, sizeof *offer);
    copy(offer->provider, sizeof offer->provider, info->fabric_attr->prov_name);
    copy(offer->fabric, sizeof offer->fabric, info->fabric_attr->name);
    copy(offer->domain, sizeof offer->domain, info->domain_attr->name);
    offer->caps = info->caps;
    offer->mr_mode = (uint64_t)info->domain_attr->mr_mode;
    offer->inject_bytes = info->tx_attr ? info->tx_attr->inject_size : 0;
    offer->max_message_bytes = info->ep_attr->max_msg_size;
    offer->cq_data_bytes = info->domain_attr->cq_data_size;
    offer->send_operations = info->tx_attr ? info->tx_attr->size : 0;
    offer->receive_operations = info->rx_attr ? info->rx_attr->size : 0;
    offer->key_bytes = info->domain_attr->mr_key_size;
    offer->address_format = info->addr_format;
    offer->is_reliable_datagram = info->ep_attr->type == FI_EP_RDM;
    offer->progresses_by_itself = info->domain_attr->data_progress == FI_PROGRESS_AUTO;
    describe_nic(info->nic, offer);
}

/* ---- opening and closing ---- */

static int open_queue(struct cf_endpoint *self, uint64_t completions) {
    struct fi_cq_attr attr = {.size = completions, .format = FI_CQ_FORMAT_DATA, .wait_obj = FI_WAIT_FD};
    self->wait_fd = -1;
    int rc = fi_cq_open(self->domain, &attr, &self->cq, NULL);
    if (rc == 0) {
        if (fi_control(&self->cq->fid, FI_GETWAIT, &self->wait_fd))
            self->wait_fd = -1;
        return 0;
    }
    attr.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(self->domain, &attr, &self->cq, NULL);
}

static int open_all(struct cf_endpoint *self, uint64_t completions, const char **what) {
    struct fi_av_attr av = {.type = FI_AV_UNSPEC};
    int rc;
    if ((*what = "fi_fabric", rc = library.fabric(self->info->fabric_attr, &self->fabric, NULL)))
        return rc;
    if ((*what = "fi_domain", rc = fi_domain(self->fabric, self->info, &self->domain, NULL)))
        return rc;
    av.type = self->info->domain_attr->av_type;
    if ((*what = "fi_av_open", rc = fi_av_open(self->domain, &av, &self->av, NULL)))
        return rc;
    if ((*what = "fi_cq_open", rc = open_queue(self, completions)))
        return rc;
    if ((*what = "fi_endpoint", rc = fi_endpoint(self->domain, self->info, &self->ep, NULL)))
        return rc;
    if ((*what = "fi_ep_bind", rc = fi_ep_bind(self->ep, &self->av->fid, 0)))
        return rc;
    if ((rc = fi_ep_bind(self->ep, &self->cq->fid, FI_TRANSMIT | FI_RECV)))
        return rc;
    *what = "fi_enable";
    return fi_enable(self->ep);
}

static int open_once(void *info, uint64_t completions, struct cf_endpoint **out, const char **what) {
    struct cf_endpoint *self = calloc(1, sizeof *self);
    *what = "fi_dupinfo";
    if (!self)
        return -FI_ENOMEM;
    self->info = library.dupinfo(info);
    int rc = self->info ? open_all(self, completions, what) : -FI_ENOMEM;
    if (rc) {
        const char *ignored;
        cf_close(self, &ignored);
        return rc;
    }
    *out = self;
    return 0;
}

/* A killed process leaves files with its PID in their names in /dev/shm, and where a later process has the same PID, shm
 * answers each of these names with FI_EBUSY, and removes the file (smr_retry_map of 1.17). The next try has another name. */
int cf_open(void *info, uint64_t completions, struct cf_endpoint **out, const char **what) {
    enum { MOST_TRIES = 256 };
    int rc = open_once(info, completions, out, what);
    for (int tries = 1; rc == -FI_EBUSY && tries < MOST_TRIES; tries++)
        rc = open_once(info, completions, out, what);
    return rc;
}

int cf_close_endpoint(struct cf_endpoint *self) {
    int rc = self->ep ? fi_close(&self->ep->fid) : 0;
    if (rc == 0)
        self->ep = NULL;
    return rc;
}

int cf_close(struct cf_endpoint *self, const char **what) {
    int rc;
    if ((*what = "fi_close of the endpoint", rc = cf_close_endpoint(self)))
        return rc;
    if (self->cq && (*what = "fi_close of the completion queue", rc = fi_close(&self->cq->fid)))
        return rc;
    if (self->av && (*what = "fi_close of the address vector", rc = fi_close(&self->av->fid)))
        return rc;
    if (self->domain && (*what = "fi_close of the domain", rc = fi_close(&self->domain->fid)))
        return rc;
    if (self->fabric && (*what = "fi_close of the fabric", rc = fi_close(&self->fabric->fid)))
        return rc;
    if (self->info)
        library.freeinfo(self->info);
    free(self);
    return 0;
}

/* ---- peers and memory ---- */

int cf_name(struct cf_endpoint *self, uint8_t *name, size_t *len) { return fi_getname(&self->ep->fid, name, len); }

int cf_add_peer(struct cf_endpoint *self, const uint8_t *name, uint64_t *peer) {
    fi_addr_t found = FI_ADDR_NOTAVAIL;
    int rc = fi_av_insert(self->av, name, 1, &found, 0, NULL);
    *peer = found;
    return rc == 1 ? 0 : rc < 0 ? rc : -FI_EINVAL;
}

static int bind_region(struct cf_endpoint *self, struct fid_mr *mr) {
    if (!(self->info->domain_attr->mr_mode & FI_MR_ENDPOINT))
        return 0;
    int rc = fi_mr_bind(mr, &self->ep->fid, 0);
    return rc ? rc : fi_mr_enable(mr);
}

int cf_register(struct cf_endpoint *self, void *base, size_t len, uint32_t purpose, uint64_t key,
                struct cf_region **out, uint64_t *chosen_key) {
    static const uint64_t access_for[] = {
        [CF_MESSAGES] = FI_SEND | FI_RECV,
        [CF_OWN_RMA] = FI_READ | FI_WRITE,
        [CF_PEERS_READ] = FI_READ | FI_WRITE | FI_REMOTE_READ,
        [CF_PEERS_WRITE] = FI_REMOTE_WRITE,
    };
    struct cf_region *region = calloc(1, sizeof *region);
    if (!region)
        return -FI_ENOMEM;
    int rc = fi_mr_reg(self->domain, base, len, access_for[purpose], 0, key, 0, &region->mr, NULL);
    if (rc == 0 && (rc = bind_region(self, region->mr)))
        fi_close(&region->mr->fid);
    if (rc) {
        free(region);
        return rc;
    }
    *chosen_key = fi_mr_key(region->mr);
    *out = region;
    return 0;
}

int cf_deregister(struct cf_region *region) {
    int rc = fi_close(&region->mr->fid);
    if (rc == 0)
        free(region);
    return rc;
}

/* ---- operations ---- */

int cf_send(struct cf_endpoint *self, const struct cf_post *p) {
    return (int)fi_send(self->ep, p->buffer, p->len, fi_mr_desc(p->region->mr), p->peer, p->context);
}

int cf_receive(struct cf_endpoint *self, const struct cf_post *p) {
    return (int)fi_recv(self->ep, p->buffer, p->len, fi_mr_desc(p->region->mr), FI_ADDR_UNSPEC, p->context);
}

int cf_read(struct cf_endpoint *self, const struct cf_post *p) {
    return (int)fi_read(self->ep, p->buffer, p->len, fi_mr_desc(p->region->mr), p->peer, p->address, p->key, p->context);
}

/* Complete when the bytes lie in the peer's memory, not when they have left: a slot's fate is known then. */
int cf_write(struct cf_endpoint *self, const struct cf_post *p) {
    struct iovec local = {.iov_base = p->buffer, .iov_len = p->len};
    struct fi_rma_iov remote = {.addr = p->address, .len = p->len, .key = p->key};
    void *desc = fi_mr_desc(p->region->mr);
    struct fi_msg_rma message = {.msg_iov = &local, .desc = &desc, .iov_count = 1, .addr = p->peer, .rma_iov = &remote,
                                 .rma_iov_count = 1, .context = p->context, .data = p->data};
    uint64_t flags = FI_COMPLETION | FI_DELIVERY_COMPLETE | (p->has_data ? FI_REMOTE_CQ_DATA : 0);
    return (int)fi_writemsg(self->ep, &message, flags);
}

static int poll_error(struct cf_endpoint *self, struct cf_completion *out) {
    struct fi_cq_err_entry entry;
    memset(&entry, 0, sizeof entry);
    int rc = (int)fi_cq_readerr(self->cq, &entry, 0);
    if (rc <= 0)
        return rc == -FI_EAGAIN ? 0 : rc;
    memset(out, 0, sizeof *out);
    out->context = entry.op_context;
    out->flags = entry.flags;
    out->status = entry.err ? entry.err : FI_EOTHER;
    out->provider_status = entry.prov_errno;
    /* The provider's own number needs the provider's own words. */
    char words[sizeof out->words] = "";
    copy(out->words, sizeof out->words,
         fi_cq_strerror(self->cq, entry.prov_errno, entry.err_data, words, sizeof words));
    return 1;
}

int cf_poll(struct cf_endpoint *self, struct cf_completion *out, int limit) {
    struct fi_cq_data_entry entries[16];
    int count = (int)fi_cq_read(self->cq, entries, limit < 16 ? (size_t)limit : 16);
    if (count == -FI_EAGAIN)
        return 0;
    if (count == -FI_EAVAIL)
        return poll_error(self, out);
    for (int i = 0; i < count; i++) {
        memset(&out[i], 0, sizeof out[i]);
        out[i].context = entries[i].op_context;
        out[i].flags = entries[i].flags;
        out[i].len = entries[i].len;
        out[i].data = entries[i].data;
    }
    return count;
}

int cf_wait_fd(struct cf_endpoint *self) { return self->wait_fd; }

int cf_may_wait(struct cf_endpoint *self) {
    struct fid *fids[1] = {&self->cq->fid};
    return fi_trywait(self->fabric, fids, 1);
}

void cf_layout(size_t sizes[8]) {
    const size_t found[8] = {
        sizeof(struct cf_offer),      offsetof(struct cf_offer, caps),       offsetof(struct cf_offer, pci),
        sizeof(struct cf_completion), offsetof(struct cf_completion, words), sizeof(struct cf_post),
        offsetof(struct cf_post, context), CF_CONTEXT_BYTES,
    };
    memcpy(sizes, found, sizeof found);
}
