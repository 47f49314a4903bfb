# The server with the tools and the config.toml of this folder.
#
#   docker build -t mcp-tool-server .
#   docker run --rm -p 127.0.0.1:8000:8000 -e MCP__AUTH__ALLOW_UNAUTHENTICATED=true mcp-tool-server
#
# Every setting can be given as MCP__SECTION__KEY (docs/configuration.md).

FROM python:3.13-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_COMPILE=1
# Archives that are made here bear this date, so that two builds make the same files.
ENV SOURCE_DATE_EPOCH=1767225600
# All that the server needs goes into this environment; the last stage copies it whole.
RUN python -m venv --without-pip /opt/venv
WORKDIR /build

# Dependencies first: they change less often than the code. Each file must match a hash.
COPY requirements/build.txt requirements/runtime.txt requirements/
RUN pip --python /opt/venv/bin/python install --require-hashes -r requirements/runtime.txt \
 && pip install --require-hashes -r requirements/build.txt

# What the tools need, if they say so, at versions that agree with the server's own.
# (LICENSE is copied so that the pattern beside it may match nothing.)
COPY LICENSE tools/requirements.tx[t] tools/
RUN if [ -f tools/requirements.txt ]; then \
      sed -n 's/^\([A-Za-z0-9._-]*==[^ ;]*\).*/\1/p' requirements/runtime.txt >constraints.txt \
      && pip --python /opt/venv/bin/python install -r tools/requirements.txt -c constraints.txt; \
    fi

COPY pyproject.toml README.md LICENSE ./
COPY app/ app/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir wheels . \
 && pip --python /opt/venv/bin/python install --no-deps --no-index wheels/*.whl

# What no running server reads: names of places and carriers of telephone numbers, tests, sources of
# compiled modules. Then the code is compiled; that of an image does not change, so nothing is compared
# at the start, and no time of a file stands in the result.
RUN cd /opt/venv/lib/python*/site-packages \
 && rm -rf phonenumbers/geodata phonenumbers/carrierdata phonenumbers/tzdata \
 && find . -type d -name tests -prune -exec rm -r {} + \
 && find . -type f \( -name '*.pyi' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' \) -delete \
 && /opt/venv/bin/python -m compileall -q --invalidation-mode unchecked-hash .

# Readable for the container's user, whatever the umask of the checkout was.
COPY config.toml /srv/mcp/
COPY tools/ /srv/mcp/tools/
COPY deploy/healthcheck.py /srv/mcp/
RUN chmod -R a+rX /srv/mcp

FROM python:3.13-slim
COPY --from=build /opt/venv /opt/venv
# Inside a container 127.0.0.1 would be out of reach. Nothing is written to the file
# system, so `docker run --read-only` works; the code is compiled already.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    MCP__SERVER__HOST=0.0.0.0 \
    MCP__SERVER__PORT=8000
WORKDIR /srv/mcp
COPY --from=build /srv/mcp ./
# A number, so that an orchestrator can see that it is not root.
USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
# Asks /readyz at the address that the server was told to bind, IPv4 or IPv6.
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s --retries=3 \
  CMD ["python", "-I", "-S", "/srv/mcp/healthcheck.py"]
ENTRYPOINT ["mcp-tool-server"]
CMD ["serve"]
