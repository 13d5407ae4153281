// RUN: xdsl-opt %s -p 'pebble-sparsify,pebble-form-sparse-networks{rows=128}' | filecheck %s
// RUN: xdsl-opt %s -p 'pebble-sparsify,pebble-form-sparse-networks{rows=8}' | filecheck %s --check-prefix=FEW
// RUN: xdsl-opt %s -p 'pebble-sparsify,pebble-form-sparse-networks' | filecheck %s --check-prefix=ANY
// RUN: xdsl-opt %s -p 'pebble-sparsify,pebble-form-sparse-networks{rows=128 prices="zen5"}' | filecheck %s --check-prefix=ZEN5

// A small layer that is dense for a few rows, and sparse for many: it stays where the rows are said to be few.
// CHECK-LABEL: @mixed
// CHECK: pebble.sparse_network
// FEW-LABEL: @mixed
// FEW-NOT: pebble.sparse_network
// ANY-LABEL: @mixed
// ANY: pebble.sparse_network
func.func @mixed(%x: tensor<?x2xf32> {pebble.name = "x", pebble.dims = ["batch", "2"]}) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  %h = pebble.linear %x, %w kernel <sparse_rows from 1, dense_outputs from 8, strips from 64, predicted [1: 0.001, 8: 0.004, 64: 0.009], "why"> : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
  func.return %h : tensor<?x2xf32>
}

// A layer that takes longer than a dense one does in onnxruntime stays there, whatever our own dense kernels would take.
// CHECK-LABEL: @slow
// FEW-LABEL: @slow
// ANY-LABEL: @slow
// CHECK-NOT: pebble.sparse_network
// ANY-NOT: pebble.sparse_network
func.func @slow(%x: tensor<?x128xf32> {pebble.name = "x", pebble.dims = ["batch", "128"]}) -> tensor<?x64xf32> {
  %w = pebble.constant dense<0.0> : tensor<128x64xf32>
  %h = pebble.linear %x, %w kernel <strips from 1, predicted [1: 1.0, 64: 9.0], "why"> : (tensor<?x128xf32>, tensor<128x64xf32>) -> tensor<?x64xf32>
  func.return %h : tensor<?x64xf32>
}

// CHECK-LABEL: @fast
// CHECK: pebble.sparse_network
// ANY-LABEL: @fast
// ANY: pebble.sparse_network
func.func @fast(%x: tensor<?x128xf32> {pebble.name = "x", pebble.dims = ["batch", "128"]}) -> tensor<?x64xf32> {
  %w = pebble.constant dense<0.0> : tensor<128x64xf32>
  %h = pebble.linear %x, %w kernel <strips from 1, predicted [1: 0.1, 64: 4.0], "why"> : (tensor<?x128xf32>, tensor<128x64xf32>) -> tensor<?x64xf32>
  func.return %h : tensor<?x64xf32>
}

// Where onnxruntime is faster, fewer layers gain.
// CHECK-LABEL: @between
// CHECK: pebble.sparse_network
// ZEN5-LABEL: @between
// ZEN5-NOT: pebble.sparse_network
func.func @between(%x: tensor<?x128xf32> {pebble.name = "x", pebble.dims = ["batch", "128"]}) -> tensor<?x64xf32> {
  %w = pebble.constant dense<0.0> : tensor<128x64xf32>
  %h = pebble.linear %x, %w kernel <strips from 1, predicted [1: 1.0, 64: 6.0], "why"> : (tensor<?x128xf32>, tensor<128x64xf32>) -> tensor<?x64xf32>
  func.return %h : tensor<?x64xf32>
}

// Rows that the type fixes count, whatever else is said: at 8 of them all kernels are dense.
// CHECK-LABEL: @fixed
// CHECK-NOT: pebble.sparse_network
// ANY-LABEL: @fixed
// ANY-NOT: pebble.sparse_network
func.func @fixed(%x: tensor<8x2xf32> {pebble.name = "x", pebble.dims = ["8", "2"]}) -> tensor<8x2xf32> {
  %w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0]]> : tensor<2x2xf32>
  %h = pebble.linear %x, %w kernel <sparse_rows from 1, dense_outputs from 8, strips from 64, predicted [1: 0.001, 8: 0.004, 64: 0.009], "why"> : (tensor<8x2xf32>, tensor<2x2xf32>) -> tensor<8x2xf32>
  func.return %h : tensor<8x2xf32>
}
