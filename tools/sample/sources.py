"""The Debian packages that the sample is taken from, whose they are, and under which licences."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One Debian source package: what it is, whose it is, and the proof that it may be passed on."""

    name: str
    upstream: str
    license: str
    holders: str
    evidence: tuple[str, ...]  # each must stand, word for word, in the package's copyright file
    packages: dict[str, tuple[str, str]]  # binary package -> (version, SHA-256 of the .deb)
    notice: tuple[str, str] | None = None  # first and last words of the notice that must travel with the text


LIBREOFFICE_VERSION = "4:7.4.7-1+deb12u14"
LIBREOFFICE_SHA256 = {
    "en-us": "8faa840285734d6cfe1ed25537b48f07e74bd6412e3917bf8e5f8a653f7b3712",
    "de": "00490b63c509ac96f7f212d6a6e40452d3e0d1f97ccf4b824dd5ec4c01e8277f",
    "el": "ed4c905d0df5761be817f59381ce7c48fa50ec9cef5737c83e66aa7d3c898f79",
    "es": "9128a84d83d92c8b1c618d90469d16affddb7d1290b09d42a0c5109cb16f0480",
    "fr": "c796530d3e95af1ea4d054076682efc8aad2b569ae9513f3d4a776b2df3fd206",
    "ja": "7799ace9bfe0845771ed2499913e7f7e521318cf3727c007672e3b020f8eb7b9",
    "ko": "7ef2d854e9ed58e6bf861cfa9fa2579555233f9df874baf327fcb07ccd190669",
    "ru": "5a2f75d5b0dfcf660275070647af528a81be28b5d3e9c3ec2d419ef5518db7a2",
    "zh-cn": "db867cdece4c2f9c7eebe65e519c6cf386fdcf49d6e061db3dffec893b3e1dee",
}

SOURCES = (
    Source(
        name="sqlite3",
        upstream="SQLite documentation, https://www.sqlite.org/",
        license="public-domain",
        holders="D. Richard Hipp (dedicated to the public domain)",
        evidence=(
            "Files: * Copyright: D. Richard Hipp <drh@hwaci.com> License: public-domain",
            "The files listed have been put on the public domain by the sqlite3 contributors.",
        ),
        packages={
            "sqlite3-doc": (
                "3.40.1-2+deb12u2",
                "466e30d7066e2641fa13e56bc662a2ad521b8cc9c17dde9c9dac3d4f105e32f2",
            )
        },
    ),
    Source(
        name="python3.11",
        upstream="Python documentation, https://docs.python.org/3.11/",
        license="PSF-2.0",
        holders="Copyright (c) 2001-2014 Python Software Foundation; All Rights Reserved",
        evidence=(
            "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2",
            "prepare derivative works, distribute, and otherwise use Python alone or in any derivative version",
        ),
        packages={
            "python3.11-doc": (
                "3.11.2-6+deb12u9",
                "5b3594189d6ef9a6963ce0347fd307a1cc67620ad697e144db366070e2e146be",
            )
        },
        notice=(
            "PYTHON SOFTWARE FOUNDATION LICENSE VERSION 2",
            "agrees to be bound by the terms and conditions of this License\nAgreement.",
        ),
    ),
    Source(
        name="postgresql-15",
        upstream="PostgreSQL documentation, https://www.postgresql.org/docs/15/",
        license="PostgreSQL",
        holders=(
            "Portions Copyright (c) 1996-2019, PostgreSQL Global Development Group; "
            "Portions Copyright (c) 1994, The Regents of the University of California"
        ),
        evidence=(
            "Files: * Copyright: Portions Copyright (c) 1996-2019, PostgreSQL Global Development Group "
            "Portions Copyright (c) 1994, The Regents of the University of California License: PostgreSQL",
        ),
        packages={
            "postgresql-doc-15": (
                "15.20-0+deb12u1",
                "4c44bf2c599f208b3f46454a6cf7a72e25ec46ff74d37b59dd31ad76b00eebb7",
            )
        },
        notice=(
            "License: PostgreSQL\n Permission to use",
            "MAINTENANCE, SUPPORT, UPDATES, ENHANCEMENTS, OR MODIFICATIONS.",
        ),
    ),
    Source(
        name="gnome-user-docs",
        upstream="GNOME Help, https://help.gnome.org/",
        license="CC-BY-SA-3.0",
        holders="Copyright (C) 2010 - 2014 Shaun McCance; and the authors and translators named under Credits",
        evidence=("Files: * Copyright: Copyright (C) 2010 - 2014 Shaun McCance License: CC-BY-SA-3.0",),
        packages={"gnome-user-docs": ("43.0-2", "0d635a840747958ca84da778b40d341f1155603851f922c9a171f5a181d6a39f")},
    ),
    Source(
        name="debian-handbook",
        upstream="The Debian Administrator's Handbook, https://debian-handbook.info/",
        license="GPL-2.0-or-later OR CC-BY-SA-3.0",
        holders="2003-2015 Raphaël Hertzog; 2006-2015 Roland Mas; 2013-2015 Freexian SARL",
        evidence=(
            "Files: * Copyright: 2003-2015 Raphaël Hertzog <hertzog@debian.org> 2006-2015 Roland Mas "
            "<lolando@debian.org> 2013-2015 Freexian SARL License: GPL-2.0+ or CC-BY-SA-3.0",
        ),
        packages={
            "debian-handbook": ("11.20220922", "3d5dbeac1f1afc9c094eab9d0f701f6ecff99c4927d5a4794cf6c85678134faa")
        },
    ),
    Source(
        name="libreoffice",
        upstream="LibreOffice Help, https://help.libreoffice.org/",
        license="MPL-2.0",
        holders=(
            "Copyright 2000, 2010 Oracle and/or its affiliates; "
            "Copyright (c) 2000, 2010 LibreOffice contributors and/or their affiliates"
        ),
        evidence=(
            "Files: * Copyright: Copyright 2000, 2010 Oracle and/or its affiliates. Copyright (c) 2000, 2010 "
            "LibreOffice contributors and/or their affiliates. License: MPL-2.0",
        ),
        packages={
            f"libreoffice-help-{lang}": (LIBREOFFICE_VERSION, digest) for lang, digest in LIBREOFFICE_SHA256.items()
        },
    ),
    Source(
        name="dict-jargon",
        upstream="The Jargon File, version 4.4.7, 29 Dec 2003, http://catb.org/jargon/",
        license="public-domain",
        holders="none (Eric S. Raymond, editor)",
        evidence=("Files: * Copyright: The Jargon File is in the public domain License: public-domain",),
        packages={"dict-jargon": ("4.4.7-3.1", "405f8168d7994ed2cb71407bb95493daec2e9aa66fc0461dafa74a9d6728a8c1")},
    ),
    Source(
        name="unicode-data",
        upstream="Unicode Character Database 15.0, https://www.unicode.org/",
        license="Unicode-DFS",
        holders=(
            "Copyright © 1991-2005 Unicode, Inc. All rights reserved (the data files themselves: © 2022 Unicode®, Inc.)"
        ),
        evidence=(
            "UNICODE, INC. LICENSE AGREEMENT - DATA FILES AND SOFTWARE",
            "the rights to use, copy, modify, merge, publish, distribute, and/or sell copies of the Data Files",
        ),
        packages={"unicode-data": ("15.0.0-1", "5efef23bbb1c6a133ecbdd63a2cfa07159ccacf5466a49e2426101c5ecd691fc")},
        notice=("COPYRIGHT AND PERMISSION NOTICE", "prior written authorization of the copyright holder."),
    ),
    Source(
        name="pci.ids",
        upstream="The PCI ID Repository, https://pci-ids.ucw.cz/",
        license="GPL-2.0-or-later OR BSD-3-Clause",
        holders="Copyright © 1997-2023 Martin Mareš; Copyright © 2015-2023 Albert Pool",
        evidence=(
            "Files: * Copyright: Copyright © 1997-2023 Martin Mareš Copyright © 2015-2023 Albert Pool "
            "License: GPL-2+ or BSD-3-clause",
        ),
        packages={"pci.ids": ("0.0~2023.04.11-1", "eac5f889128f3f53100be7f16f9a7dd5aade7499fa9571f53a6c1cfa0bf4565d")},
        notice=("Redistribution and use in source and binary forms", "POSSIBILITY OF SUCH DAMAGE."),
    ),
    Source(
        name="publicsuffix",
        upstream="Public Suffix List, https://publicsuffix.org/",
        license="MPL-2.0",
        holders=(
            "2010-2022 PSL maintainers, Daniel Veditz, Ehsan Akhgari, Gervase Markham, Jason Duell, Jothan Frakes, "
            "Mitchell Field, Mounir Lamouri, Ruben Arakelyan, Simone Carletti"
        ),
        evidence=(
            "Files: * Copyright: 2010-2022 PSL maintainers, Daniel Veditz, Ehsan Akhgari, Gervase Markham, "
            "Jason Duell, Jothan Frakes, Mitchell Field, Mounir Lamouri, Ruben Arakelyan, Simone Carletti "
            "License: MPL-2.0",
        ),
        packages={
            "publicsuffix": ("20230209.2326-1", "791c92c681a3cefcc9721445dc8a301a1a3cb3eef40ac2c16a4d9dd9ad5a42d7")
        },
    ),
)
SOURCE_OF = {package: source for source in SOURCES for package in source.packages}
