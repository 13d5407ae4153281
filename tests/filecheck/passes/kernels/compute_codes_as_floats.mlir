// RUN: xdsl-opt %s -p pebble-compute-codes-as-floats | filecheck %s

// CHECK-LABEL: @layer
func.func @layer(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = pebble.constant dense<[[1.0, 2.0], [0.0, 3.0]]> : tensor<2x2xf32>
  %b = pebble.constant dense<[4.0, 5.0]> : tensor<2xf32>
  %m = pebble.constant dense<[0.5, 1.0]> : tensor<2xf32>
  // CHECK: %[[D:.*]] = pebble.div %x, %{{.*}} : (tensor<?x2xf32>, tensor<1xf32>)
  // CHECK-NEXT: %q = pebble.activate <quantize(1.0, 128.0)> %[[D]]
  %q = pebble.convert %x : (tensor<?x2xf32>) -> tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>
  // CHECK-NEXT: %[[S:.*]] = pebble.linear %q, %w bias %b {pebble.node = "fc"} : (tensor<?x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
  // CHECK-NEXT: %[[M:.*]] = pebble.constant dense<[2.000000e+00, 4.000000e+00]>
  // CHECK-NEXT: %[[T:.*]] = pebble.mul %[[S]], %[[M]]
  // CHECK-NEXT: %[[R:.*]] = pebble.activate <quantize(1.0, 131.0)> %[[T]]
  // CHECK-NEXT: %h = pebble.activate <relu> %[[R]]
  %h = pebble.linear %q, %w bias %b times %m : tensor<2xf32> activation <relu> {pebble.node = "fc"} : (tensor<?x2x!pebble.codes<u8 scale 0.5 zero 128>>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<?x2x!pebble.codes<s8 scale 0.25 zero 3>>
  // CHECK: %y = pebble.mul %h, %{{.*}} : (tensor<?x2xf32>, tensor<1xf32>)
  %y = pebble.convert %h : (tensor<?x2x!pebble.codes<s8 scale 0.25 zero 3>>) -> tensor<?x2xf32>
  func.return %y : tensor<?x2xf32>
}
