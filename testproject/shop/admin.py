"""Orders in the admin, with what their jobs wrote."""

from __future__ import annotations

from django.contrib import admin

from testproject.shop.models import JournalEntry, Order, Receipt


class ReceiptInline(admin.TabularInline):  # type: ignore[type-arg]  # not generic at run time
    """The receipts of an order, to read."""

    model = Receipt
    extra = 0
    can_delete = False
    readonly_fields = ["provider_ref", "amount", "currency", "created_at"]


class JournalInline(admin.TabularInline):  # type: ignore[type-arg]
    """The journal of an order, to read."""

    model = JournalEntry
    extra = 0
    can_delete = False
    readonly_fields = ["text", "created_at"]


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Find an order and see whether it was paid."""

    list_display = ["number", "customer", "amount", "currency", "status", "paid_at"]
    list_filter = ["status", "currency"]
    search_fields = ["number", "customer", "provider_ref"]
    inlines = [ReceiptInline, JournalInline]
