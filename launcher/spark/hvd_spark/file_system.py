"""Opens Arrow's file systems by URI, with the same storage_options as hvd::EstimatorStore."""

import datetime
import urllib.parse

# These map the options of each scheme to Arrow's names in Python. An option with None is handled
# below.
_S3 = {
    "key": "access_key",
    "secret": "secret_key",
    "token": "session_token",
    "anon": "anonymous",
    "endpoint_override": "endpoint_override",
    "endpoint_url": None,
    "region": "region",
    "scheme": "scheme",
}
_AZURE = {
    "account_name": "account_name",
    "account_key": "account_key",
    "sas_token": "sas_token",
    "tenant_id": "tenant_id",
    "client_id": "client_id",
    "client_secret": "client_secret",
    "blob_storage_authority": "blob_storage_authority",
    "dfs_storage_authority": "dfs_storage_authority",
    "scheme": None,
}
_GCS = {
    "anon": "anonymous",
    "project": "project_id",
    "endpoint_override": "endpoint_override",
    "scheme": "scheme",
}
_HDFS = {
    "host": "host",
    "port": "port",
    "user": "user",
    "kerb_ticket": "kerb_ticket",
    "replication": "replication",
}
OPTIONS = {
    "": {},
    "file": {},
    "s3": _S3,
    "abfs": _AZURE,
    "abfss": _AZURE,
    "gs": _GCS,
    "gcs": _GCS,
    "hdfs": _HDFS,
    "viewfs": _HDFS,
}
# What the query of a URI may have. Other names are refused, because some of Azure's are secrets.
_AZURE_QUERY = (
    "blob_storage_authority",
    "dfs_storage_authority",
    "enable_tls",
    "credential_kind",
    "client_id",
)
_QUERY = {
    "s3": ("region", "scheme", "endpoint_override"),
    "abfs": _AZURE_QUERY,
    "abfss": _AZURE_QUERY,
}
_CONNECT_SECONDS = 5.0  # the timeout of S3 for each of a few attempts
_REQUEST_SECONDS = 30.0
_ATTEMPTS = 4
_RETRY_SECONDS = 30  # of Google's library, which by itself tries for 15 minutes


def scheme_of(uri):
    """Returns the scheme of a URI, or an empty text for a path."""
    scheme, separator, _ = uri.partition("://")
    return scheme if separator else ""


def check(uri, options):
    """Raises ValueError for a URI or options that `locate` does not accept. It does not access the
    file system."""
    scheme = scheme_of(uri)
    if scheme not in OPTIONS:
        raise ValueError(
            "unknown scheme %r; known are a path, %s" % (scheme, ", ".join(filter(None, OPTIONS)))
        )
    known = OPTIONS[scheme]
    unknown = next((name for name in options if name not in known), None)
    if unknown is not None:
        raise ValueError(
            "%s has no storage option %r; it has: %s"
            % (scheme + "://" if scheme else "a path", unknown, ", ".join(known) or "none")
        )
    user, at, _ = urllib.parse.urlsplit(uri).netloc.rpartition("@") if scheme else ("", "", "")
    if at and (":" in user or scheme in ("s3", "gs", "gcs")):
        raise ValueError("credentials do not belong into a URI: they are storage_options")
    for item in filter(None, urllib.parse.urlsplit(uri).query.split("&") if scheme else ()):
        name = item.partition("=")[0]
        if name not in _QUERY.get(scheme, (name,)):
            raise ValueError("%r is not taken in a URI; pass it as a storage option" % name)
        if options and name not in known:
            raise ValueError("%r is not taken in a URI beside storage options" % name)
    if options.get("anon", "false").lower() not in ("true", "1", "false", "0"):
        raise ValueError("the storage option 'anon' is true or false")


def locate(uri, options):
    """Returns a pyarrow.fs.FileSystem and the path of `uri` on it. Raises what Arrow raises."""
    from pyarrow import fs

    scheme = scheme_of(uri)
    if not scheme:
        return fs.LocalFileSystem(), uri
    if scheme == "s3":
        return _s3(fs, uri, options)
    if not options:
        return fs.FileSystem.from_uri(_limited(uri) if scheme in ("gs", "gcs") else uri)
    parts = urllib.parse.urlsplit(uri)
    options = _with_query(parts, options)
    given = {OPTIONS[scheme][name]: value for name, value in options.items()}
    if scheme in ("abfs", "abfss"):
        return _azure(fs, parts, given, options)
    if scheme in ("gs", "gcs"):
        given["anonymous"] = _is_true(given.get("anonymous", ""))
        given["retry_time_limit"] = datetime.timedelta(seconds=_RETRY_SECONDS)
        return fs.GcsFileSystem(**given), _path(parts.netloc, parts.path)
    given.setdefault("host", parts.hostname or "default")
    given.setdefault("user", parts.username)
    given["port"] = int(given.get("port", parts.port or 0))
    given["replication"] = int(given.get("replication", 3))
    return fs.HadoopFileSystem(**given), urllib.parse.unquote(parts.path)


def _s3(fs, uri, options):
    parts = urllib.parse.urlsplit(uri)
    options = _with_query(parts, options)
    url = options.pop("endpoint_url", None)
    given = {_S3[name]: value for name, value in options.items()}
    given["anonymous"] = _is_true(given.get("anonymous", ""))
    if url is not None:
        given["scheme"], _, host = url.partition("://")
        given["endpoint_override"] = host.rstrip("/")
    if "region" not in given and "endpoint_override" not in given:
        given["region"] = fs.resolve_s3_region(parts.netloc)
    return (
        fs.S3FileSystem(
            connect_timeout=_CONNECT_SECONDS,
            request_timeout=_REQUEST_SECONDS,
            retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_ATTEMPTS),
            **given
        ),
        _path(parts.netloc, parts.path),
    )


def _azure(fs, parts, given, options):
    """Opens abfs://container@account.dfs.core.windows.net/path or abfs://container/path."""
    container, at, host = parts.netloc.partition("@")
    given.pop(None, None)
    if at:
        given.setdefault("account_name", host.partition(".")[0])
    if "scheme" in options:
        given["blob_storage_scheme"] = given["dfs_storage_scheme"] = options["scheme"]
    return fs.AzureFileSystem(**given), _path(container, parts.path)


def _with_query(parts, options):
    """Returns the options and those of the URI's query. If both set one, that of the options counts."""
    return {**dict(urllib.parse.parse_qsl(parts.query)), **options}


def _limited(uri):
    """Adds the limit of retries to the query of a URI for Google's storage, unless it has one."""
    if "retry_limit_seconds=" in urllib.parse.urlsplit(uri).query:
        return uri
    return "%s%sretry_limit_seconds=%d" % (uri, "&" if "?" in uri else "?", _RETRY_SECONDS)


def _path(bucket, path):
    return bucket + urllib.parse.unquote(path)


def _is_true(text):
    return text.lower() in ("1", "true")
