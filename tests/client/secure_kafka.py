"""An Apache Kafka with listeners for those who come by TLS and SASL, beside the open one, and for
those who come through a proxy.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.client.proxied import PROTOCOLS, with_proxy
from tests.client.proxy import Proxy
from tests.compat.nodes import KafkaNode
from tests.ports import free_port

USER, PASSWORD = "alice", "so, what=ever"


class Authority:
    """Certificates: the broker's is for 127.0.0.1, the client's for nobody."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trusted = directory / "authority.pem"
        self.stranger = directory / "stranger.pem"
        for name in ("authority", "stranger"):
            self._run(
                f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name}"
                f" -keyout {name}.key -out {name}.pem"
            )
        self.broker = self._signed("broker", "subjectAltName=IP:127.0.0.1")
        self.client = self._signed("client", "subjectAltName=DNS:nobody.invalid")

    def _signed(self, name: str, extension: str) -> Path:
        """Key and certificate in one file."""
        (self.directory / f"{name}.ext").write_text(extension + "\n")
        self._run(
            f"req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
        )
        self._run(
            f"x509 -req -in {name}.csr -CA authority.pem -CAkey authority.key -CAcreateserial"
            f" -days 2 -extfile {name}.ext -out {name}.crt"
        )
        parts = [(self.directory / f"{name}.{kind}").read_text() for kind in ("key", "crt")]
        (self.directory / f"{name}.pem").write_text("".join(parts))
        return self.directory / f"{name}.pem"

    def _run(self, command: str) -> None:
        subprocess.run(
            ["openssl", *command.split()], cwd=self.directory, check=True, capture_output=True
        )


class SecureKafka(KafkaNode):
    def __init__(self, directory: Path, overrides: Mapping[str, str], authority: Authority) -> None:
        super().__init__(directory, overrides)
        self.authority = authority
        self.proxy = Proxy()
        self.ports = {name: free_port() for name in ("SASL_SSL", "SASL_PLAINTEXT", "SSL")}

    def address(self, protocol: str) -> str:
        return f"127.0.0.1:{self.ports[protocol]}"

    def _properties(self) -> str:
        listeners = "".join(f"{name}://{self.address(name)}," for name in self.ports)
        text = with_proxy(super()._properties(), self.proxy)
        for setting in ("listeners", "advertised.listeners"):
            text = text.replace(f"\n{setting}=", f"\n{setting}={listeners}", 1)
        login = "org.apache.kafka.common.security"
        users = f'{login}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        more = {
            "listener.security.protocol.map": PROTOCOLS
            + ","
            + ",".join(f"{name}:{name}" for name in self.ports),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.authority.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.trusted),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        }
        for protocol in ("sasl_ssl", "sasl_plaintext"):
            more[f"listener.name.{protocol}.plain.sasl.jaas.config"] = users
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                more[f"listener.name.{protocol}.{mechanism}.sasl.jaas.config"] = (
                    f"{login}.scram.ScramLoginModule required;"
                )
        return text + "".join(f"{name}={value}\n" for name, value in more.items())
